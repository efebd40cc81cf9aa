// Runs a parsed template over its variables. Sandboxed by construction: values cannot be changed, there is no
// way to files, modules or the host's objects, and steps, depth, bytes and output are bounded. Filters,
// tests, methods and functions live in files of their own and see only this interface.
#pragma once

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace fourfold::text::jinja {

struct Limits {
  std::int64_t steps_max = 20'000'000;             // expressions, statements, items and bytes looked at
  std::int64_t bytes_max = std::int64_t{2} << 30;  // of all strings and lists ever built
  std::size_t output_bytes_max = std::size_t{64} << 20;
  int depth_max = 600;  // nested evaluations, macros included
};

struct Scope {
  std::shared_ptr<Scope> parent;
  const Dict* variables = nullptr;  // of the outermost: what the template was given, which may be a lot
  std::vector<std::pair<std::string, Value>> names;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// What {{ loop }} is.
struct LoopState {
  std::vector<Value> items;
  std::size_t index = 0;
  int depth = 1;
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;  // where the loop stands; a recursive call starts there
  std::vector<Value> last_changed;
  bool has_changed = false;
};

class Evaluator {
 public:
  Evaluator(std::string_view name, const Limits& limits, std::tm now)
      : name_(name), limits_(limits), now_(now) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Throws Error(invalid_request) with the template's name and line.
  TracedText render(const Body& body, const Dict& variables);

  // ---- for filters, tests, methods and functions; faults are TemplateFault
  void charge(std::int64_t steps);
  void charge_bytes(std::size_t bytes);
  // For looking at so many bytes: searching, comparing, copying.
  void charge_look(std::size_t bytes) { charge(1 + static_cast<std::int64_t>(bytes / kBytesPerStep)); }
  void charge_compare(const Value& a, const Value& b) { charge_look(std::min(a.weight(), b.weight())); }
  // For so many strings at once, before they are made.
  void charge_texts(std::size_t count) { charge_bytes(count * (sizeof(Value) + sizeof(TracedText) + 16)); }
  TracedText text_of(const Value& value);  // str()
  Value new_text(TracedText text, bool markup = false);
  Value new_text(std::string text, bool markup = false) {
    return new_text(TracedText(std::move(text)), markup);
  }
  Value new_list(std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::list);
  std::vector<Value> items_of(const Value& value);
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& function, Arguments arguments);
  Value apply_filter(std::string_view name, const Value& input, Arguments arguments);
  bool apply_test(std::string_view name, const Value& input, Arguments arguments);
  Value run_macro(const Statement& macro, const std::shared_ptr<Scope>& scope, std::string_view name,
                  Arguments arguments);
  TracedText run_loop(const Statement& loop, std::vector<Value> items, const std::shared_ptr<Scope>& scope,
                      int depth);
  Value new_namespace(Namespace members);
  std::size_t output_bytes_max() const { return limits_.output_bytes_max; }
  const std::tm& now() const { return now_; }

 private:
  static constexpr std::size_t kBytesPerStep = 16;
  enum class Flow { normal, break_loop, continue_loop };
  class Nested;
  class Output;

  Flow run(const Body& body, const std::shared_ptr<Scope>& scope);
  Flow run(const Statement& statement, const std::shared_ptr<Scope>& scope);
  Flow run_condition(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void run_for(const Statement& statement, std::vector<Value> items, const std::shared_ptr<Scope>& scope,
               int depth);
  void run_set_block(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void run_call_block(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void run_with(const Statement& statement, const std::shared_ptr<Scope>& scope);
  TracedText captured(const Body& body, const std::shared_ptr<Scope>& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  void require_room(std::size_t bytes);
  void write(const Value& value);
  std::shared_ptr<Scope> inner(const std::shared_ptr<Scope>& scope);

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_name(const Expression& node, Scope& scope);
  Value evaluate_display(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_filter(const Expression& node, Scope& scope, const Value* input);
  Value evaluate_compare(const Expression& node, Scope& scope);
  Value evaluate_condition(const Expression& node, Scope& scope);
  Value evaluate_concatenation(const Expression& node, Scope& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, Scope& scope);

  std::string name_;
  Limits limits_;
  std::tm now_;
  TracedText* out_ = nullptr;
  std::int64_t steps_ = 0;
  std::int64_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  // Scopes and namespaces may hold each other; they are emptied when the run ends.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// ---- operators.cpp
Value binary_operation(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right);
Value negated(const Value& value);
bool contains(Evaluator& evaluator, const Value& container, const Value& item);

// ---- access.cpp
Value sliced(Evaluator& evaluator, const Value& value, const Value& start, const Value& stop,
             const Value& step);
[[noreturn]] void fail_undefined(const Value& undefined);

// ---- methods: null when the type has no such method
Value text_method(const Value& object, std::string_view name);
Value container_method(const Value& object, std::string_view name);
Value loop_attribute(const Value& loop, std::string_view name);

// ---- functions.cpp: range, namespace, raise_exception ...; undefined when there is none
Value global_function(std::string_view name);

}  // namespace fourfold::text::jinja
