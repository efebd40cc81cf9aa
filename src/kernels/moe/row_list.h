// Rows are types; a list of them is what a kernel offers on a chip. One name per row, the same on every
// machine, so that what was proved and what was measured can be compared line by line.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace fourfold::moe {

template <class... Rows>
struct RowList {};

template <class... Rows, class Visit>
void for_each_row(RowList<Rows...>, const Visit& visit) {
  (visit.template operator()<Rows>(), ...);
}

template <class A, class B>
struct Joined;
template <class... A, class... B>
struct Joined<RowList<A...>, RowList<B...>> {
  using type = RowList<A..., B...>;
};
template <class A, class B>
using Join = typename Joined<A, B>::type;

// "moe_gemm 128x128x64 w4a4 nvfp4"
inline std::string row_name(std::string_view kernel, int m, int n, int k, std::string_view path,
                            std::string_view format_name) {
  return format("{} {}x{}x{} {} {}", kernel, m, n, k, path, format_name);
}

}  // namespace fourfold::moe
