// Tool calls in a model's answer, as text comes, in the format of tool_format.h that the template shows. What
// comes out is OpenAI's: a name, then the text of one JSON object in pieces. Tagged values are typed by the
// tool's own schema.
//
// Models are careless; what is unambiguous is accepted. The answer is the same however the text is cut.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"
#include "text/tool_format.h"

namespace fourfold::text {

// The JSON types a parameter may have, as bits.
enum ToolType : unsigned {
  kToolNull = 1,
  kToolInteger = 2,
  kToolNumber = 4,
  kToolBoolean = 8,
  kToolObject = 16,
  kToolArray = 32,
  kToolString = 64,
};

class ToolSchemas {
 public:
  // `parameters` is the JSON schema of the arguments object.
  void add(std::string name, jinja::Value parameters);
  bool empty() const { return schemas_.empty(); }
  bool knows(std::string_view function) const { return schemas_.find(function) != schemas_.end(); }
  // By type, enum, const, anyOf, oneOf, allOf and references within the schema; a string where it says
  // nothing.
  unsigned types_of(std::string_view function, std::string_view parameter) const;

 private:
  std::map<std::string, jinja::Value, std::less<>> schemas_;
};

// A parameter's text as JSON: the first of its types that can read it, in the order of ToolType; a string
// otherwise.
std::string typed_json(std::string_view text, unsigned types);

// Whether a model's text is one JSON object.
bool is_json_object(std::string_view text);

struct ToolEvent {
  enum class Kind { text, begin, arguments, end };
  Kind kind;
  std::string text;  // begin: the name; arguments: the next piece of the object; end: nothing
};

class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;

  virtual std::vector<ToolEvent> push(std::string_view text) = 0;
  // The end of the answer closes a call that is open, unless the answer was cut off: then its arguments stay
  // unfinished JSON, so that half a call is not run.
  virtual std::vector<ToolEvent> finish(bool cut_off) = 0;
  virtual bool in_call() const = 0;
};

// The schemas must outlive it. Harmony's calls are not in the text: a HarmonyReader gives them.
std::unique_ptr<ToolCallParser> make_tool_call_parser(CallFormat format, const ToolSchemas& schemas);

}  // namespace fourfold::text
