// A trap in the HTTP parser of Boost.Beast (seen in 1.81), for both rooms that read HTTP by it: given
// "0\r\n", the last chunk of an empty body, and then the same with one byte more, it fails an assertion of
// its own, n >= 5, and the process ends.
#pragma once

#include <string_view>

namespace fourfold {

// Whether bytes that a chunked message has left over must wait for the next one. There is a next one: what
// ends a chunked body is two bytes longer than its last chunk's line.
constexpr bool is_beast_chunk_trap(std::string_view left_over) { return left_over == "0\r\n\r"; }

}  // namespace fourfold
