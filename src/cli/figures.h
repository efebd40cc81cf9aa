// Numbers as people read them: as many digits as matter. What programs read (--json, CSV) has all of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fourfold::cli {

// Three digits, more only where they stand before the point: 0.187, 4.21, 30.5, 764, 16,052.
std::string rounded(double value);

// "15.3 MB", "24.8 GB", in powers of ten.
std::string as_bytes(double bytes);

// "20.7 million", "397 billion".
std::string as_count(double count);

// "1 token", "2,048 tokens".
std::string counted(std::int64_t count, std::string_view what);

}  // namespace fourfold::cli
