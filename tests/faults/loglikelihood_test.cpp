// What lm-eval's local-completions asks of a server, replayed from its requests (0.4.13: the remote
// tokenizer, then token ids with echo and logprobs), on a real server; and that it adds up to `fourfold
// perplexity`. tests/clients/lm_eval_suite.py does the same with the package itself.
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "tests/faults/support.h"

namespace fourfold::server {
namespace {

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t kWindow = 62;  // of max_length 64: one less to generate, one less for the context

boost::json::value parsed(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return json::parse(reply.body, "answer");
}

std::string text_of(const Ids& ids) {
  std::string out = "[";
  for (const std::int64_t id : ids) out += (out.size() == 1 ? "" : ",") + std::to_string(id);
  return out + "]";
}

class LmEval : public testing::Test {
 protected:
  Ids encode(const std::string& text) const {
    const std::string body = R"({"prompt": ")" + text + R"(", "add_special_tokens": false})";
    const auto answer = parsed(server_.ask(post("/tokenize", body)));
    Ids out;
    for (const auto& id : answer.at("tokens").as_array()) out.push_back(id.to_number<std::int64_t>());
    return out;
  }

  // One request, as the package writes it.
  boost::json::array ask(const std::vector<Ids>& prompts) const {
    std::string list;
    for (const Ids& prompt : prompts) list += (list.empty() ? "" : ", ") + text_of(prompt);
    const std::string body =
        R"({"model": "micro", "prompt": [)" + list +
        R"(], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true})";
    return parsed(server_.complete(body)).at("choices").as_array();
  }

  // lm_eval's parse_logprobs: of the tokens behind the context; whether each is the most probable one.
  static std::pair<double, bool> add_up(const boost::json::value& choice, std::size_t context) {
    const auto& tokens = choice.at("logprobs").at("token_logprobs").as_array();
    const auto& best = choice.at("logprobs").at("top_logprobs").as_array();
    double sum = 0;
    bool greedy = true;
    for (std::size_t i = context; i + 1 < tokens.size(); ++i) {
      const double own = tokens[i].to_number<double>();
      sum += own;
      greedy = greedy && own == best[i].as_object().begin()->value().to_number<double>();
    }
    return {sum, greedy};
  }

  // get_rolling_token_windows with a context of one token: what is asked, and what of it counts.
  static std::vector<Ids> windows_of(std::int64_t prefix, const Ids& tokens) {
    std::vector<Ids> out;
    for (std::size_t at = 0; at < tokens.size(); at += kWindow) {
      Ids window{at == 0 ? prefix : tokens[at - 1]};
      const std::size_t end = std::min(tokens.size(), at + kWindow);
      window.insert(window.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                    tokens.begin() + static_cast<std::ptrdiff_t>(end));
      out.push_back(std::move(window));
    }
    return out;
  }

  RealServer server_;
};

TEST_F(LmEval, RollingLoglikelihoodIsPerplexity) {
  if (std::string(FOURFOLD_PROGRAM).empty()) GTEST_SKIP() << "the program was not built";
  const auto info = parsed(server_.ask(get("/tokenizer_info")));
  const std::string eos = info.at("eos_token").as_string().c_str();
  EXPECT_EQ(info.at("tokenizer_class").as_string(), "PreTrainedTokenizerFast");
  EXPECT_NE(info.at("chat_template").as_string().find("im_start"), std::string::npos);
  ASSERT_EQ(encode(eos).size(), 1u);
  std::string text;
  for (int i = 0; i < 200; ++i) text += fourfold::format("{}kolami tuba {}", i == 0 ? "" : " ", i * i % 77);
  Ids tokens = encode(text);
  const std::int64_t count = 4 * kWindow;  // whole windows: the last one of others has a longer context there
  ASSERT_GT(std::ssize(tokens), count);
  tokens.resize(static_cast<std::size_t>(count));
  const std::vector<Ids> windows = windows_of(encode(eos).front(), tokens);

  double loglikelihood = 0;
  std::vector<std::string> alone;
  for (const Ids& window : windows) {
    const auto choices = ask({window});
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_EQ(choices[0].at("logprobs").at("tokens").as_array().size(), window.size() + 1);
    loglikelihood += add_up(choices[0], 1).first;
    alone.push_back(boost::json::serialize(choices[0].at("logprobs")));
  }
  // A batch, and again what is in the cache by now: the same numbers.
  const auto together = ask(windows);
  ASSERT_EQ(together.size(), windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(together[i].at("index").to_number<std::size_t>(), i);
    EXPECT_EQ(boost::json::serialize(together[i].at("logprobs")), alone[i]) << i;
  }

  const std::filesystem::path file = server_.folder.folder().path() / "text.txt";
  server_.folder.folder().write("text.txt", eos + text);
  const cli::Outcome ran =
      cli::shell(fourfold::format("PROGRAM perplexity {} {} --window {} --tokens {} --json",
                                  server_.folder.path(), file.string(), kWindow, count));
  ASSERT_EQ(ran.status, 0) << ran.out;
  const auto score = json::parse(ran.out, "perplexity");
  EXPECT_EQ(score.at("tokens").to_number<std::int64_t>(), count);
  const double surprise = score.at("mean_surprise").to_number<double>();
  EXPECT_GT(surprise, 1);
  // Sums of the same numbers in another order.
  EXPECT_NEAR(-loglikelihood / static_cast<double>(count), surprise, 1e-12 * surprise);
  EXPECT_TRUE(server_.settles());
}

// The answer to a choice task: the more probable of two continuations; one that is greedy is said to be.
TEST_F(LmEval, ContinuationsAreComparedAndGreedyOnesKnown) {
  const Ids context = encode("the tale of");
  const auto answer =
      parsed(server_.complete(R"({"model": "micro", "prompt": [)" + text_of(context) +
                              R"(], "temperature": 0, "max_tokens": 3, "return_token_ids": true})"));
  Ids greedy = context, other = context;
  for (const auto& id : answer.at("choices").at(0).at("token_ids").as_array())
    greedy.push_back(id.to_number<std::int64_t>());
  for (std::size_t i = context.size(); i < greedy.size(); ++i) other.push_back((greedy[i] + 1) % 256);
  const auto choices = ask({other, greedy});
  const auto [first, first_greedy] = add_up(choices[0], context.size());
  const auto [second, second_greedy] = add_up(choices[1], context.size());
  EXPECT_LT(first, second);
  EXPECT_FALSE(first_greedy);
  EXPECT_TRUE(second_greedy);
}

// vLLM's field says the same, on both protocols, and without an answer.
TEST_F(LmEval, PromptLogprobsAreTheSameNumbers) {
  const Ids ids = encode("kolami tuba 42");
  const std::string prompt = R"({"model": "micro", "temperature": 0, "prompt": )" + text_of(ids);
  const auto echoed = parsed(server_.complete(prompt + R"(, "max_tokens": 0, "echo": true, "logprobs": 2})"));
  const auto asked = parsed(server_.complete(prompt + R"(, "max_tokens": 2, "n": 2, "prompt_logprobs": 2})"));
  const auto& tokens = echoed.at("choices").at(0).at("logprobs").at("token_logprobs").as_array();
  ASSERT_EQ(tokens.size(), ids.size());
  for (const auto& choice : asked.at("choices").as_array()) {
    const auto& measured = choice.at("prompt_logprobs").as_array();
    ASSERT_EQ(measured.size(), ids.size());
    EXPECT_TRUE(measured[0].is_null());
    for (std::size_t i = 1; i < ids.size(); ++i) {
      const auto& token = measured[i].as_object();
      EXPECT_GE(token.size(), 2u);
      EXPECT_EQ(token.at(std::to_string(ids[i])).at("logprob"), tokens[i]);
      double most = -1e9;
      for (const auto& [id, one] : token) most = std::max(most, one.at("logprob").to_number<double>());
      EXPECT_EQ(token.at(std::to_string(ids[i])).at("rank") == 1, tokens[i].to_number<double>() == most);
    }
  }
  const auto chat = parsed(server_.chat(
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "prompt_logprobs": 0})"));
  EXPECT_EQ(chat.at("prompt_logprobs").as_array().size(),
            chat.at("usage").at("prompt_tokens").to_number<std::size_t>());
}

// An end that is all but certain from the first token on waits for min_tokens.
TEST_F(LmEval, AnswersAreAsLongAsAsked) {
  const std::string end = std::to_string(encode("<|im_end|>").front());
  const std::string body = R"({"model": "micro", "prompt": "kolami", "max_tokens": 50, "logit_bias": {")" +
                           end + R"(": 100}, "return_token_ids": true)";
  const auto count = [&](const std::string& more) {
    const auto answer = parsed(server_.complete(body + more + "}"));
    EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "stop");
    EXPECT_EQ(answer.at("choices").at(0).at("token_ids").as_array().size(),
              answer.at("usage").at("completion_tokens").to_number<std::size_t>());
    return answer.at("usage").at("completion_tokens").to_number<int>();
  };
  EXPECT_EQ(count(""), 1);
  EXPECT_EQ(count(R"(, "min_tokens": 0)"), 1);
  EXPECT_EQ(count(R"(, "min_tokens": 1)"), 2);
  EXPECT_EQ(count(R"(, "min_tokens": 40)"), 41);
}

}  // namespace
}  // namespace fourfold::server
