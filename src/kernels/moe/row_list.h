// Rows are types; a list of them is what a kernel offers on a chip. One name per row, the same on every
// machine, so that what was proved and what was measured can be compared line by line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/format.h"

namespace fourfold::moe {

template <class... Rows>
struct RowList {
  static constexpr std::size_t count = sizeof...(Rows);
};

template <class... Rows, class Visit>
void for_each_row(RowList<Rows...>, const Visit& visit) {
  (visit.template operator()<Rows>(), ...);
}

template <class... Lists>
struct Joined {
  using type = RowList<>;
};
template <class... A>
struct Joined<RowList<A...>> {
  using type = RowList<A...>;
};
template <class... A, class... B, class... More>
struct Joined<RowList<A...>, RowList<B...>, More...> : Joined<RowList<A..., B...>, More...> {};
template <class... Lists>
using Join = typename Joined<Lists...>::type;

// The rows of a list on chips where `has` holds.
template <bool has, class List>
using If = std::conditional_t<has, List, RowList<>>;

// Part `index` of `parts`, in order and as equal as can be: how a list is spread over translation units.
template <class List, std::size_t first, class Indices>
struct Sliced;
template <class... Rows, std::size_t first, std::size_t... i>
struct Sliced<RowList<Rows...>, first, std::index_sequence<i...>> {
  using type = RowList<std::tuple_element_t<first + i, std::tuple<Rows...>>...>;
};
template <class List, std::size_t index, std::size_t parts>
using PartOf = typename Sliced<
    List, List::count * index / parts,
    std::make_index_sequence<List::count*(index + 1) / parts - List::count * index / parts>>::type;

// What ends the names of rows of ClampedSwiGlu.
inline constexpr const char* kClampedName = " clamped";

// "moe_gemm 128x128x64 w4a4 nvfp4"
inline std::string row_name(std::string_view kernel, int m, int n, int k, std::string_view path,
                            std::string_view format_name) {
  return format("{} {}x{}x{} {} {}", kernel, m, n, k, path, format_name);
}

}  // namespace fourfold::moe
