// The members of one object of a request, each read with its type and range. null counts as not given. What
// nobody asked for is noted in the end (notes.h), or refused where it looks like a known name misspelt: no
// field is ever ignored silently.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/notes.h"
#include "text/jinja/value.h"

namespace fourfold::server::api {

using Json = text::jinja::Value;

// "a string", "an array": for messages.
std::string_view kind_of(const Json& value);
// A value as a message shows it: short.
std::string shown(const Json& value);

// The known name that an unknown one was probably meant to be: the same but for case, '_' and '-', or one
// edit away from a name of 3 to 5 letters, or at most two from a longer one; an edit is a letter more, less
// or other, or two neighbours exchanged. Empty: none.
std::string_view meant_name(std::string_view unknown, const std::set<std::string, std::less<>>& known);

// An integer of a list or a field; 2.0 counts as one.
std::optional<std::int64_t> whole_number(const Json& value);

struct Range {
  double low, high;
  bool low_is_allowed = true;
};

class Fields {
 public:
  // `path` stands before the names in messages: "messages[0]"; empty for the body itself. Refuses what is no
  // object. The notes must outlive it.
  Fields(const Json& object, std::string path, Notes& notes);

  std::string name_of(std::string_view name) const;
  Notes& notes() const { return *notes_; }

  // Nothing for a field that is absent or null. Whatever is asked for counts as known.
  const Json* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view name, const Range& range);
  std::optional<std::string> text(std::string_view name);
  const std::vector<Json>* list(std::string_view name);
  std::optional<Fields> object(std::string_view name);
  // One of these texts.
  std::optional<std::string> one_of(std::string_view name, std::span<const std::string_view> choices);
  std::optional<std::string> one_of(std::string_view name, std::initializer_list<std::string_view> choices) {
    return one_of(name, std::span(choices.begin(), choices.size()));
  }

  // Fields that change nothing about the answer.
  void ignore(std::initializer_list<std::string_view> names);
  // Fields that may only say what happens anyway; anything else is refused.
  void only_false(std::initializer_list<std::string_view> names);
  void only_true(std::initializer_list<std::string_view> names);
  void only_number(std::string_view name, double value);
  // Known fields this server cannot honour: refused unless they say nothing (false, empty).
  void refuse_any(std::initializer_list<std::string_view> names);

  // Notes what is left; refuses names that are probably misspelt, and more of them than a client would send.
  void finish() const;

 private:
  const text::jinja::Dict* dict_;
  std::string path_;
  Notes* notes_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace fourfold::server::api
