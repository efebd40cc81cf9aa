#include "server/json_guard.h"

#include <algorithm>

#include "base/error.h"

namespace fourfold::server {

JsonSize measure_json(std::string_view text) {
  JsonSize size{.depth = 0, .value_count = 1};
  std::size_t depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i)
          if (text[i] == '\\') ++i;
        break;
      case '{':
      case '[':
        size.depth = std::max(size.depth, ++depth);
        ++size.value_count;
        break;
      case '}':
      case ']': depth -= depth > 0 ? 1 : 0; break;
      case ',': ++size.value_count; break;
      default: break;
    }
  }
  return size;
}

void require_bounded(std::string_view text, const JsonBounds& bounds) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    fail(Code::invalid_request, "the body is empty; it must be a JSON object");
  if (text.starts_with("\xEF\xBB\xBF"))
    fail(Code::invalid_request, "the body begins with a byte order mark; JSON has none");
  const JsonSize size = measure_json(text);
  if (size.depth > bounds.depth_max)
    fail(Code::invalid_request, "the body is {} brackets deep; at most {} are allowed", size.depth,
         bounds.depth_max);
  if (size.value_count > bounds.value_count_max)
    fail(Code::invalid_request, "the body has about {} values; at most {} are allowed", size.value_count,
         bounds.value_count_max);
}

}  // namespace fourfold::server
