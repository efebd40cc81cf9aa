#include "base/error.h"

namespace fourfold {

Error::Error(Code code, std::string message, std::string hint)
    : std::runtime_error(std::move(message)), code_(code), hint_(std::move(hint)) {}
Error::Error(const Error&) = default;
Error& Error::operator=(const Error&) = default;
Error::~Error() = default;

void throw_error(Code code, std::string hint, std::string_view pattern, FormatValues values) {
  throw Error(code, formatted(pattern, values), std::move(hint));
}

}  // namespace fourfold
