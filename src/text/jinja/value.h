// What a template computes with: Python's values as far as chat templates see them. Strings, lists and dicts
// are shared and never change (the sandbox Hugging Face renders in forbids it too); only namespaces do. Every
// container knows how deep it nests, so that no walk over a value can exhaust the stack, and how much there
// is to walk over, so that it can be charged before.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/traced_text.h"

namespace fourfold::text::jinja {

class Value;
class Dict;
struct Sequence;
class Callable;
struct Namespace;
struct LoopState;

inline constexpr int kValueDepthMax = 100;

struct Undefined {
  std::string why;  // "'tools' is undefined"
};
struct None {};

struct Text {
  std::shared_ptr<const TracedText> text;
  // Came out of |safe or |escape: adding to it escapes the other side, as Python's Markup does.
  bool markup = false;
};

// An integer beyond 64 bits: written in its own digits and compared by them with other integers; for all
// else, sums and comparisons with floats, the nearest float.
struct WideInteger {
  std::string digits;  // with a minus where it is below zero, and no zeros in front
  double nearest;
};

enum class SequenceKind { list, tuple, range, generator, view };

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Callable>, std::shared_ptr<Namespace>,
                   std::shared_ptr<LoopState>, std::shared_ptr<const WideInteger>>;

  Value() = default;
  Value(None) : data_(None{}) {}
  Value(bool truth) : data_(truth) {}
  Value(int number) : data_(std::int64_t{number}) {}
  Value(std::int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(WideInteger number) : data_(std::make_shared<const WideInteger>(std::move(number))) {}
  Value(TracedText text, bool markup = false)
      : data_(Text{std::make_shared<const TracedText>(std::move(text)), markup}) {}
  // Foreign: nothing but the template's own text makes control tokens.
  Value(std::string text, bool markup = false) : Value(TracedText(std::move(text)), markup) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(Dict dict);
  template <std::derived_from<Callable> T>
  Value(std::shared_ptr<T> callable) : data_(std::shared_ptr<Callable>(std::move(callable))) {}
  Value(std::shared_ptr<Namespace> names) : data_(std::move(names)) {}
  Value(std::shared_ptr<LoopState> loop) : data_(std::move(loop)) {}

  // Throws when nested deeper than kValueDepthMax.
  static Value list(std::vector<Value> items, SequenceKind kind = SequenceKind::list,
                    std::string view_name = {});
  static Value range(std::int64_t start, std::int64_t stop, std::int64_t step, std::vector<Value> items);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), SequenceKind::tuple); }
  static Value generator(std::vector<Value> items) { return list(std::move(items), SequenceKind::generator); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(data_); }  // a bool is not, here
  // A float, or what is computed with as one: a WideInteger.
  bool is_real() const { return std::holds_alternative<double>(data_) || wide() != nullptr; }
  bool is_number() const { return is_bool() || is_integer() || is_real(); }
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  bool is_markup() const { return is_text() && std::get<Text>(data_).markup; }
  bool is_sequence() const { return sequence() != nullptr; }
  bool is_dict() const { return dict() != nullptr; }

  const std::string& text() const { return traced().bytes(); }
  const TracedText& traced() const { return *std::get<Text>(data_).text; }
  bool boolean() const { return std::get<bool>(data_); }
  double real() const { return wide() != nullptr ? wide()->nearest : std::get<double>(data_); }
  const WideInteger* wide() const {
    const auto* held = std::get_if<std::shared_ptr<const WideInteger>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  // A bool counts as 0 or 1.
  std::int64_t integer() const { return is_bool() ? boolean() : std::get<std::int64_t>(data_); }
  double number() const { return is_real() ? real() : static_cast<double>(integer()); }
  const Sequence* sequence() const {
    const auto* held = std::get_if<std::shared_ptr<const Sequence>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  const Dict* dict() const {
    const auto* held = std::get_if<std::shared_ptr<const Dict>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  Callable* callable() const { return get<Callable>(); }
  Namespace* names() const { return get<Namespace>(); }
  LoopState* loop() const { return get<LoopState>(); }
  const Data& data() const { return data_; }

  int depth() const;
  // Bytes of text and members of whatever can be reached from it, each as often as a walk meets it.
  std::size_t weight() const;

 private:
  template <class T>
  T* get() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  Data data_;
};

struct Sequence {
  using Kind = SequenceKind;
  Kind kind = Kind::list;
  std::vector<Value> items;
  int depth = 1;
  std::size_t weight = 1;
  std::string view_name;                       // "dict_items", for printing
  std::int64_t start = 0, stop = 0, step = 1;  // of a range
  // A generator gives its items once.
  mutable bool consumed = false;
};

// Members in the order they were written; a repeated key keeps its place and takes the later value. Text keys
// come from clients: a few are compared one by one, many are found in an ordered map, and no hash can be made
// to collide.
class Dict {
 public:
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const Value* find(const char* key) const { return find(std::string_view(key)); }
  void set(Value key, Value value);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  int depth() const { return depth_; }
  std::size_t weight() const { return weight_; }

 private:
  static constexpr std::size_t kFew = 8;
  std::ptrdiff_t place_of(const Value& key) const;
  std::ptrdiff_t place_of(std::string_view key) const;
  void index(std::size_t place);

  std::vector<std::pair<Value, Value>> items_;
  std::map<std::string_view, std::size_t> text_places_;  // of more than a few; points into their keys
  std::size_t text_count_ = 0;
  std::size_t weight_ = 1;
  int depth_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Evaluator;

// A macro, a function of the environment, or a method together with its object.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value call(Evaluator& evaluator, Arguments arguments) = 0;
  virtual std::string name() const = 0;
  virtual int depth() const { return 1; }
};

// Python's rules.
bool truth(const Value& value);
bool equal(const Value& left, const Value& right);
// Negative, zero, positive; throws when the two have no order.
int compare(const Value& left, const Value& right);
// Whether it can be a dict's key: not a list, not a dict.
bool is_hashable(const Value& value);
// "str", "dict", "NoneType": for messages.
std::string_view type_name(const Value& value);

// What goes wrong while a template runs; the evaluator adds the line and turns it into an Error.
class TemplateFault : public std::exception {
 public:
  explicit TemplateFault(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace fourfold::text::jinja
