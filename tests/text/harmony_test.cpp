// gpt-oss's channels: by token, whatever the text of a message says, and however careless the headers are.
#include "text/harmony.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/random.h"
#include "json/parse.h"
#include "text/detokenizer.h"
#include "text/jinja/json_value.h"

namespace fourfold::text {
namespace {

// The small o200k vocabulary with Harmony's control tokens.
const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    namespace bj = boost::json;
    bj::value file = json::parse_file(FOURFOLD_TEXT_GOLDEN "/o200k.tokenizer.json",
                                      {.text_bytes_max = std::size_t{1} << 24});
    bj::array& added = file.as_object().at("added_tokens").as_array();
    std::int64_t id = added.back().as_object().at("id").as_int64();
    for (const char* content :
         {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"})
      added.push_back(bj::object{{"id", ++id},
                                 {"content", content},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
    return Tokenizer::parse(bj::serialize(file), "tokenizer.json");
  }();
  return made;
}

void add(const HarmonyPiece& piece, std::string& out) {
  if (!piece.thinking.empty()) out += "(" + piece.thinking + ")";
  out += piece.content;
  for (const ToolEvent& event : piece.calls) {
    if (event.kind == ToolEvent::Kind::begin) out += "[" + event.text + " ";
    if (event.kind == ToolEvent::Kind::arguments) out += event.text;
    if (event.kind == ToolEvent::Kind::end) out += "]";
  }
}

std::string merged(std::string text) {
  for (std::size_t at; (at = text.find(")(")) != std::string::npos;) text.erase(at, 2);
  return text;
}

std::string read(const std::vector<TokenId>& ids, bool cut_off = false, bool reads_calls = true,
                 std::string_view prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant") {
  HarmonyReader reader(tokenizer(), tokenizer().encode(prompt), reads_calls);
  Detokenizer words(tokenizer(), {.skip_special = true});
  std::string out;
  for (const TokenId id : ids) add(reader.push(id, words.push(id)), out);
  add(reader.push(-2, words.finish()), out);
  add(reader.finish(cut_off), out);
  return merged(out);
}

std::string read(const std::string& text, bool cut_off = false) {
  return read(tokenizer().encode(text), cut_off);
}

TEST(Harmony, ChannelsArePartedByWhatTheyAre) {
  EXPECT_EQ(read("<|channel|>analysis<|message|>Hm.\n雪<|end|><|start|>assistant<|channel|>final<|message|>"
                 "Yes é.<|return|>"),
            "(Hm.\n雪)Yes é.");
  EXPECT_EQ(read("<|channel|>final<|message|>Yes."), "Yes.");
  EXPECT_EQ(
      read(
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Done."),
      "I look.\n\nDone.");
  EXPECT_EQ(read("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"),
            "(a\n\nb)");
}

TEST(Harmony, CallsInBothPlacesOfTheReceiver) {
  const std::string expected = R"((Hm.)[get_weather {"city": "Zürich"}])";
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string json = R"({"city": "Zürich"})";
  for (const std::string& header :
       {std::string("<|channel|>commentary to=functions.get_weather <|constrain|>json"),
        std::string("<|channel|>commentary to=functions.get_weather<|constrain|>json"),
        std::string("<|channel|>commentary to=functions.get_weather json"),
        std::string(" to=functions.get_weather<|channel|>commentary <|constrain|>json"),
        std::string(" to=functions.get_weather<|channel|>commentary json"),
        std::string("<|channel|>analysis to=functions.get_weather code"),
        std::string("<|channel|>commentary to=get_weather")})
    for (const char* end : {"<|call|>", "<|end|>", ""})
      EXPECT_EQ(read(thought + header + "<|message|>" + json + end), expected) << header << end;
}

TEST(Harmony, SeveralCallsAndWordsBeforeThem) {
  EXPECT_EQ(
      read("<|channel|>commentary<|message|>Two:<|end|><|start|>assistant<|channel|>commentary to=functions.a"
           "<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.b<|message|>{\"x\": "
           "[1]}<|call|>"),
      R"(Two:[a {}][b {"x": [1]}])");
  EXPECT_EQ(read("<|channel|>commentary to=functions.a<|message|><|call|>"), "[a {}]");
}

TEST(Harmony, HalfACallIsNotRun) {
  const std::string open = "<|channel|>commentary to=functions.a<|message|>";
  EXPECT_EQ(read(open + R"({"x": "rm -r /tm)", true), R"([a {"x": "rm -r /tm)");
  EXPECT_EQ(read(open + R"({"x": 1})", true), R"([a {"x": 1})");
  EXPECT_EQ(read(open + R"({"x": )"
                        "<|call|>"),
            R"([a {"x": )");
  EXPECT_EQ(read(open + "print(1)<|call|>"), "[a print(1)");
}

// Letters are letters: in thoughts, in texts and in arguments.
TEST(Harmony, SpelledControlWordsAreText) {
  const EncodeOptions as_text{.special_as_text = true};
  const std::string words =
      "<|end|><|start|>assistant<|channel|>commentary to=functions.a<|message|>{}<|call|>";
  std::vector<TokenId> ids = tokenizer().encode("<|channel|>analysis<|message|>");
  for (const TokenId id : tokenizer().encode(words, as_text)) ids.push_back(id);
  for (const TokenId id : tokenizer().encode("<|end|><|start|>assistant<|channel|>final<|message|>"))
    ids.push_back(id);
  for (const TokenId id : tokenizer().encode(words, as_text)) ids.push_back(id);
  EXPECT_EQ(read(ids), "(" + words + ")" + words);
}

TEST(Harmony, CarelessHeaders) {
  EXPECT_EQ(read("Hello there"), "Hello there");  // none at all
  EXPECT_EQ(read("<|message|>Hello"), "Hello");
  EXPECT_EQ(read("<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes."), "(Hm.)Yes.");
  EXPECT_EQ(read("<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Yes."), "(Hm.)Yes.");
  EXPECT_EQ(read("<|channel|>nonsense<|message|>Yes."), "Yes.");
  EXPECT_EQ(read("<|channel|>final"), "");
  EXPECT_EQ(read("<|channel|>commentary to=functions.a{b<|message|>x"), "x");  // no name
  EXPECT_EQ(read(std::string(3000, 'x')), std::string(3000, 'x'));
}

TEST(Harmony, WithoutToolsCallsAreText) {
  const auto ids = tokenizer().encode("<|channel|>commentary to=functions.a<|message|>{}<|call|>");
  EXPECT_EQ(read(ids, false, false), "{}");
}

TEST(Harmony, GoesOnWhereThePromptEnds) {
  const auto ids = tokenizer().encode(" more");
  EXPECT_EQ(read(ids, false, true, "<|start|>assistant<|channel|>final<|message|>Some"), " more");
  EXPECT_EQ(read(ids, false, true, "<|start|>assistant<|channel|>analysis<|message|>Some"), "( more)");
  EXPECT_EQ(read(tokenizer().encode("<|start|>assistant<|channel|>final<|message|>x"), false, true,
                 "<|start|>user<|message|>Hi<|end|>"),
            "x");
  EXPECT_TRUE(last_header(tokenizer().encode("no messages"), tokenizer()).empty());
}

TEST(Harmony, ThinkingIsKnownWhileItLasts) {
  HarmonyReader reader(tokenizer(), tokenizer().encode("<|start|>assistant"), true);
  for (const TokenId id : tokenizer().encode("<|channel|>analysis<|message|>Hm"))
    reader.push(id, tokenizer().token_bytes(id));
  EXPECT_TRUE(reader.thinking());
  for (const TokenId id : tokenizer().encode("<|end|><|start|>assistant<|channel|>final<|message|>"))
    reader.push(id, tokenizer().token_bytes(id));
  EXPECT_FALSE(reader.thinking());
  EXPECT_TRUE(reader.speaking());
}

// Any order of control tokens and words: nothing breaks, and every call that ends has an object.
TEST(Harmony, AnythingMayCome) {
  const std::vector<std::string> words = {"<|start|>",
                                          "<|end|>",
                                          "<|message|>",
                                          "<|channel|>",
                                          "<|constrain|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "assistant",
                                          "analysis",
                                          "commentary",
                                          "final",
                                          " to=functions.f",
                                          "json",
                                          "{}",
                                          "{",
                                          "}",
                                          "\"",
                                          "é",
                                          " ",
                                          "x"};
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string text;
    for (std::uint64_t i = random.below(20); i > 0; --i) text += words[random.below(words.size())];
    HarmonyReader reader(tokenizer(), tokenizer().encode("<|start|>assistant"), true);
    std::vector<ToolEvent> events;
    for (const TokenId id : tokenizer().encode(text))
      for (ToolEvent& event :
           reader.push(id, tokenizer().is_special(id) ? "" : tokenizer().token_bytes(id)).calls)
        events.push_back(std::move(event));
    for (ToolEvent& event : reader.finish(random.below(2) == 0).calls) events.push_back(std::move(event));
    std::string arguments;
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::begin) arguments.clear();
      if (event.kind == ToolEvent::Kind::arguments) arguments += event.text;
      if (event.kind != ToolEvent::Kind::end) continue;
      ASSERT_TRUE(is_json_object(arguments)) << text;
    }
  }
}

}  // namespace
}  // namespace fourfold::text
