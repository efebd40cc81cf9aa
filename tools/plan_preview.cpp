// What ./dev try shows while the rest still compiles: the field's overflowing tile, and our tiles of the same
// chip against the same limit. Needs the rooms base and plan and the table of rows, so it is built in half a
// minute.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "kernels/plan/row_table.h"
#include "plan/explain.h"
#include "plan/picture.h"

namespace {

using namespace fourfold;

bool is_native_tile(const plan::RowFacts& row) {
  return row.kernel == "moe_gemm" && row.path == "w4a4" && row.format == "nvfp4";
}

plan::PictureStyle terminal_style() {
  plan::PictureStyle style;
  style.color = isatty(STDOUT_FILENO) == 1;
  return style;
}

}  // namespace

int main() {
  const plan::PictureStyle style = terminal_style();
  const int limit_bytes = plan::Sm120::smem_bytes_per_block;
  std::string page = format(
      "Why NVFP4 kernels fail to start on workstation Blackwell: a block has {} bytes of shared memory "
      "there, and\n"
      "a pipeline depth computed apart from the struct that holds it forgets the struct's padding.\n\n",
      with_commas(limit_bytes));
  page += plan::overflow_picture(style);
  page +=
      "\nFourfold's tiles for the same chip (weight rows x tokens x K, FP4 x FP4). The depth follows from "
      "sizeof;\n"
      "a tile that does not fit does not compile:\n\n";
  std::vector<plan::Bar> whole_block;
  std::string shared_block;
  int largest_bytes = 0;
  const std::vector<plan::RowFacts> rows = kernels::rows_of(plan::kSm120);
  for (const plan::RowFacts& row : rows) {
    largest_bytes = std::max(largest_bytes, row.total_bytes);
    if (!is_native_tile(row)) continue;
    const std::string tile = format("{}x{}x{}", row.m, row.n, row.k);
    if (row.blocks_per_sm == 1) {
      whole_block.push_back({.label = format("{}, {} stages", tile, row.stages), .parts = row.parts});
    } else {
      shared_block += format("{}{} ({} of {})", shared_block.empty() ? "" : ", ", tile,
                             with_commas(row.total_bytes), with_commas(row.limit_bytes));
    }
  }
  page += plan::draw_bars(whole_block, limit_bytes, style);
  page +=
      format("A weight records, B token records, scales inside. Two blocks on an SM:\n{}\n", shared_block);
  page += format("{} rows for SM120 in all, the largest takes {} of {} bytes.\n", rows.size(),
                 with_commas(largest_bytes), with_commas(limit_bytes));
  std::fputs(page.c_str(), stdout);
  return 0;
}
