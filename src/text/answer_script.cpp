#include "text/answer_script.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"

namespace fourfold::text {
namespace {

using jinja::Dict;
using jinja::Value;
using Ids = std::vector<TokenId>;
using Window = ScriptTable::Window;
constexpr std::ptrdiff_t kWindow = std::tuple_size_v<Window>;

const Dict& object_of(const Value& value, const std::string& place,
                      std::initializer_list<std::string_view> known) {
  const Dict* dict = value.dict();
  if (dict == nullptr) fail(Code::invalid_request, "{}: is no object", place);
  for (const auto& [key, member] : dict->items())
    if (std::find(known.begin(), known.end(), key.text()) == known.end())
      fail(Code::invalid_request, "{}: unknown member \"{}\"", place, key.text());
  return *dict;
}

std::string text_of(const Dict& dict, const char* name, const std::string& place) {
  const Value* value = dict.find(name);
  if (value == nullptr) return {};
  if (!value->is_text()) fail(Code::invalid_request, "{}.{}: is no text", place, name);
  return value->text();
}

std::vector<Value> list_of(const Dict& dict, const char* name, const std::string& place) {
  const Value* value = dict.find(name);
  if (value == nullptr) return {};
  if (!value->is_sequence()) fail(Code::invalid_request, "{}.{}: is no list", place, name);
  return value->sequence()->items;
}

ScriptedCall read_call(const Value& value, const std::string& place) {
  const Dict& dict = object_of(value, place, {"name", "arguments"});
  const Value* arguments = dict.find("arguments");
  ScriptedCall call{text_of(dict, "name", place), arguments == nullptr ? Value(Dict{}) : *arguments};
  if (call.name.empty()) fail(Code::invalid_request, "{}: has no name", place);
  if (!call.arguments.is_dict()) fail(Code::invalid_request, "{}.arguments: is no object", place);
  return call;
}

std::vector<ScriptedAnswer> read_answers(const Dict& script, const char* name, const std::string& what) {
  std::vector<ScriptedAnswer> answers;
  for (const Value& value : list_of(script, name, what)) {
    const std::string place = fourfold::format("{}: {}[{}]", what, name, answers.size());
    const Dict& dict = object_of(value, place, {"text", "calls"});
    ScriptedAnswer answer{text_of(dict, "text", place), {}};
    for (const Value& call : list_of(dict, "calls", place))
      answer.calls.push_back(read_call(call, fourfold::format("{}.calls[{}]", place, answer.calls.size())));
    if (answer.text.empty() && answer.calls.empty())
      fail(Code::invalid_request, "{}: has neither text nor calls", place);
    answers.push_back(std::move(answer));
  }
  return answers;
}

Value message(const char* role, std::string_view content) {
  Dict dict;
  dict.set("role", role);
  dict.set("content", content);
  return dict;
}

Value message(const ScriptedAnswer& answer) {
  Dict dict;
  dict.set("role", "assistant");
  dict.set("content", answer.text);
  std::vector<Value> calls;
  for (const ScriptedCall& call : answer.calls) {
    Dict function, outer;
    function.set("name", call.name);
    function.set("arguments", call.arguments);
    outer.set("type", "function");
    outer.set("function", std::move(function));
    calls.push_back(std::move(outer));
  }
  if (!calls.empty()) dict.set("tool_calls", Value::list(std::move(calls)));
  return dict;
}

// Two made-up tools, to see how the template shows any: nothing of their own is alike.
Value one_tool(bool described) {
  Dict function, outer;
  function.set("name", "alpha");
  if (described) {
    function.set("description", "Adds.");
    function.set("parameters", Dict{});
  }
  outer.set("type", "function");
  outer.set("function", std::move(function));
  return outer;
}
Value another_tool() {
  Dict kind, properties, parameters, function, outer;
  kind.set("type", "integer");
  properties.set("count", std::move(kind));
  parameters.set("properties", std::move(properties));
  function.set("parameters", std::move(parameters));
  function.set("description", "It counts.");
  function.set("name", "beta");
  outer.set("function", std::move(function));
  outer.set("type", "function");
  return outer;
}

class TableMaker {
 public:
  TableMaker(const AnswerScript& script, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
             std::span<const TokenId> ends)
      : script_(script), template_(chat_template), tokenizer_(tokenizer), ends_(ends.begin(), ends.end()) {}

  ScriptTable make() {
    const auto& with = script_.with_tools;
    const auto& without = script_.without_tools;
    read(with, "with_tools");
    read(without, "without_tools");
    phases_ = static_cast<int>(answers_.size());
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      const std::size_t first = i < with.size() ? 0 : with.size();
      const std::size_t count = i < with.size() ? with.size() : without.size();
      const std::size_t next = first + (i + 1 - first) % count;
      set_phases(answers_[i], answers_[next].phase);
      answers_[next].before = i;
      add(answers_[i], without.empty() ? i == 0 : i == with.size());
    }
    for (const Answer& answer : answers_) add_after_changes(answer);
    if (!with.empty() && !without.empty()) table_.turns.push_back({window_that_shows_tools(), 1});
    return std::move(table_);
  }

 private:
  Ids render(std::vector<Value> messages, bool answer_next, std::optional<bool> thinking = {},
             std::vector<Value> tools = {}) const {
    ChatRequest request;
    request.messages = Value::list(std::move(messages));
    if (!tools.empty()) request.tools = Value::list(std::move(tools));
    request.add_generation_prompt = answer_next;
    request.enable_thinking = thinking;
    return tokenizer_.encode(template_.render(request));
  }

  // An answer as it stands between two questions; tool results in place of the second where it calls any.
  Ids history(const ScriptedAnswer& answer) const {
    std::vector<Value> messages{message("user", "A question."), message(answer)};
    for (std::size_t i = 0; i < answer.calls.size(); ++i) messages.push_back(message("tool", "A result."));
    messages.push_back(message("user", "Another one."));
    return render(std::move(messages), false);
  }

  // What the template makes of an answer, with the token that ends it.
  Ids body(const ScriptedAnswer& answer, const std::string& place) const {
    const Ids asked = render({message("user", "A question.")}, true);
    const Ids told = history(answer);
    const auto begin = std::mismatch(asked.begin(), asked.end(), told.begin(), told.end()).second;
    const auto end = std::find_first_of(begin, told.end(), ends_.begin(), ends_.end());
    if (end == told.end()) fail(Code::invalid_request, "{}: the template does not end it", place);
    // The window of its last token must not reach into the prompt, which differs from place to place.
    if (end - begin < kWindow - 1)
      fail(Code::invalid_request, "{}: has {} tokens; it needs {} to be known by its end", place, end - begin,
           kWindow - 1);
    return {begin, end + 1};
  }

  // What comes between a prompt that ends so and the answer itself.
  std::string lead(const std::string& prompt) const {
    if (prompt.ends_with("<think>\n")) return script_.thought + "\n</think>\n\n";
    if (script_.thought.empty() || prompt.ends_with("</think>\n\n")) return {};
    return "<think>\n" + script_.thought + "\n</think>\n\n";
  }

  struct Answer {
    std::string place;
    int phase;  // in which it begins
    Ids body;
    std::vector<int> phases = {};  // in which each token of the body is said
    std::size_t before = 0;        // the answer it follows
  };

  void read(const std::vector<ScriptedAnswer>& list, const char* name) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = fourfold::format("{}[{}]", name, i);
      answers_.push_back({place, static_cast<int>(answers_.size()) + 1, body(list[i], place)});
      for (const Ids& lead : leads())
        for (const Window& seen : windows(joined(lead, answers_.back().body))) ++texts_with_[seen];
    }
  }

  // An answer begins in the phase that the one before left. At its first four tokens that stand nowhere else
  // a phase of its own begins, at its last ones that of the next answer; what stands between may need more.
  void set_phases(Answer& answer, int next_phase) {
    std::vector<std::ptrdiff_t> once;
    for (std::ptrdiff_t end = kWindow; end <= std::ssize(answer.body); ++end)
      if (stands_once(answer, end)) once.push_back(end);
    if (once.empty())
      fail_with_hint(Code::invalid_request, "say it in other words",
                     "{}: has no four tokens in a row that no other place has", answer.place);
    answer.phases.assign(answer.body.size(), answer.phase);
    if (once.size() > 1) begin_phase(answer, once.front(), ++phases_);
    begin_phase(answer, once.back(), next_phase);
    while (split_once(answer, once)) continue;
  }
  void begin_phase(Answer& answer, std::ptrdiff_t end, int phase) {
    if (end < std::ssize(answer.body)) {
      const int before = answer.phases[static_cast<std::size_t>(end)];
      std::replace(answer.phases.begin() + end, answer.phases.end(), before, phase);
    }
    table_.turns.push_back({window(answer.body, end), phase});
  }

  // Where four tokens repeat in a phase and go on otherwise, another begins between the two places.
  bool split_once(Answer& answer, const std::vector<std::ptrdiff_t>& once) {
    std::map<std::pair<Window, int>, std::ptrdiff_t> places;
    for (std::ptrdiff_t at = kWindow; at < std::ssize(answer.body); ++at) {
      const auto index = static_cast<std::size_t>(at);
      const auto [known, is_new] = places.try_emplace({window(answer.body, at), answer.phases[index]}, at);
      if (is_new || answer.body[static_cast<std::size_t>(known->second)] == answer.body[index]) continue;
      const auto between = std::upper_bound(once.begin(), once.end(), known->second);
      if (between == once.end() || *between > at) continue;  // add_steps() says what is wrong
      begin_phase(answer, *between, ++phases_);
      return true;
    }
    return false;
  }
  bool stands_once(const Answer& answer, std::ptrdiff_t end) const {
    const Window seen = window(answer.body, end);
    std::ptrdiff_t count = 0;
    for (std::ptrdiff_t at = kWindow; at <= std::ssize(answer.body); ++at)
      if (window(answer.body, at) == seen) ++count;
    return count == 1 && texts_with_.at(seen) == static_cast<int>(leads().size());
  }

  // What may stand before an answer: the end of a prompt, and a thought where there is one.
  const std::vector<Ids>& leads() const {
    if (leads_.empty())
      for (const std::optional<bool> thinking : {std::optional<bool>{}, {true}, {false}}) {
        const Ids asked = render({message("user", "A question.")}, true, thinking);
        leads_.push_back(joined(Ids(asked.end() - kWindow, asked.end()),
                                tokenizer_.encode(lead(tokenizer_.decode(asked)))));
      }
    return leads_;
  }

  void add(const Answer& answer, bool is_default) {
    for (const Ids& lead : leads()) {
      add_steps(answer, lead, answer.phase, true);
      if (is_default) add_steps(answer, lead, 0, true);
    }
  }

  // A client may send an answer back with another end: the next one begins all the same, as far as what it
  // begins with means nothing else within the answer before.
  void add_after_changes(const Answer& answer) {
    for (const int phase :
         std::set<int>(answers_[answer.before].phases.begin(), answers_[answer.before].phases.end()))
      for (const Ids& lead : leads()) add_steps(answer, lead, phase, false);
  }

  // The answer behind a prompt that ends so, where it begins in another phase than its own.
  void add_steps(const Answer& answer, const Ids& lead, int begins, bool needed) {
    const Ids text = joined(lead, answer.body);
    for (std::size_t at = kWindow; at < text.size(); ++at) {
      int phase = at < lead.size() ? answer.phase : answer.phases[at - lead.size()];
      if (phase == answer.phase) phase = begins;
      const Window seen = window(text, static_cast<std::ptrdiff_t>(at));
      const auto [known, is_new] = next_.try_emplace({seen, phase}, text[at]);
      if (is_new) table_.steps.push_back({seen, phase, text[at]});
      if (needed && known->second != text[at])
        fail_with_hint(Code::invalid_request, "say it in other words",
                       "{}: behind \"{}\" come both \"{}\" and \"{}\"; four tokens must say what follows",
                       answer.place, tokenizer_.decode(seen), tokenizer_.token_bytes(known->second),
                       tokenizer_.token_bytes(text[at]));
    }
  }

  static Ids joined(Ids first, const Ids& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  static std::set<Window> windows(const Ids& ids) {
    std::set<Window> found;
    for (std::ptrdiff_t at = kWindow; at <= std::ssize(ids); ++at) found.insert(window(ids, at));
    return found;
  }
  static Window window(const Ids& ids, std::ptrdiff_t end) {
    Window seen;
    std::copy_n(ids.begin() + end - kWindow, kWindow, seen.begin());
    return seen;
  }

  // Some templates want a description of every tool, and parameters.
  Ids prompt_with_one_tool() const {
    try {
      return render({message("user", "One.")}, true, {}, {one_tool(false)});
    } catch (const Error&) {
      return render({message("user", "One.")}, true, {}, {one_tool(true)});
    }
  }

  // The last four tokens that stand in every prompt with tools, in none without, and in no answer.
  Window window_that_shows_tools() const {
    const Ids first = prompt_with_one_tool();
    const std::set<Window> second = windows(render({message("system", "You help."), message("user", "Two.")},
                                                   true, {}, {another_tool(), another_tool()}));
    std::set<Window> elsewhere =
        windows(render({message("system", "You are kind."), message("user", "One.")}, true));
    for (const auto* answers : {&script_.with_tools, &script_.without_tools})
      for (const ScriptedAnswer& answer : *answers) elsewhere.merge(windows(history(answer)));
    for (std::ptrdiff_t end = std::ssize(first); end >= kWindow; --end)
      if (const Window seen = window(first, end); second.contains(seen) && !elsewhere.contains(seen))
        return seen;
    fail_with_hint(Code::invalid_request, "use a template that takes tools, or leave one of the lists away",
                   "the chat template shows tools in no way that could be recognised");
  }

  const AnswerScript& script_;
  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
  Ids ends_;
  ScriptTable table_;
  int phases_ = 0;
  std::vector<Answer> answers_;
  mutable std::vector<Ids> leads_;
  std::map<Window, int> texts_with_;  // each answer behind each lead is one
  std::map<std::pair<Window, int>, TokenId> next_;
};

}  // namespace

AnswerScript parse_answer_script(std::string_view json, std::string_view what) {
  const std::string place(what);
  const Value value = parse_chat_json(json, what);
  const Dict& dict = object_of(value, place, {"thought", "with_tools", "without_tools", "ends"});
  AnswerScript script{text_of(dict, "thought", place), read_answers(dict, "with_tools", place),
                      read_answers(dict, "without_tools", place)};
  if (const std::vector<Value> ends = list_of(dict, "ends", place); !ends.empty()) {
    script.ends.clear();
    for (const Value& end : ends) {
      if (!end.is_text()) fail(Code::invalid_request, "{}.ends: is no list of texts", place);
      script.ends.push_back(end.text());
    }
  }
  if (script.with_tools.empty() && script.without_tools.empty())
    fail(Code::invalid_request, "{}: has no answers, neither with_tools nor without_tools", place);
  return script;
}

ScriptTable make_script_table(const AnswerScript& script, const ChatTemplate& chat_template,
                              const Tokenizer& tokenizer, std::span<const TokenId> ends) {
  return TableMaker(script, chat_template, tokenizer, ends).make();
}

}  // namespace fourfold::text
