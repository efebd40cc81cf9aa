#include "plan/explain.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "base/format.h"
#include "plan/separate_budget.h"
#include "plan/text.h"

namespace fourfold::plan {
namespace {

using separate::Budget;
using separate::Epilogue;
using separate::Folding;
using separate::Kernel;
using separate::Verdict;

// Every number of this page is printed with thousands separated.
template <class T>
auto shown(const T& value) {
  if constexpr (std::is_integral_v<T>) {
    return with_commas(value);
  } else {
    return std::string_view(value);
  }
}

// A paragraph of a section.
template <class... Values>
std::string says(std::string_view pattern, const Values&... values) {
  return paragraph(format(pattern, shown(values)...), 3);
}

// A numbered line within it: mark "a." and so on.
template <class... Values>
std::string step(std::string_view mark, std::string_view pattern, const Values&... values) {
  return paragraph(format(pattern, shown(values)...), 8, format("     {}", mark));
}

// ---- 1. our rows -----------------------------------------------------------------------------------------

// "here", numbered when the tile has several rows: ties the list of bytes to its bar in the picture.
std::string row_label(std::size_t row_index, std::size_t row_count) {
  return row_count == 1 ? "here" : format("here {}", row_index + 1);
}

std::string describe_row(const RowFacts& row, std::string_view label, const PictureStyle& style) {
  check_row(row);
  std::string out =
      says("{}: {}, row {}: {}, {}, {}; {} stages, {} threads, {} registers a thread, {} block{} per SM.",
           label, row.kernel, row.row, row.path, row.format, row.role, row.stages, row.threads, row.registers,
           row.blocks_per_sm, row.blocks_per_sm == 1 ? "" : "s");
  out += "       offset     bytes  part\n";
  int offset_bytes = 0;
  for (std::size_t index = 0; index < row.parts.size(); ++index) {
    const RowPart& part = row.parts[index];
    out += format("   {} {} {}  {}\n", part_glyph(static_cast<int>(index), style),
                  pad_left(with_commas(offset_bytes), 8), pad_left(with_commas(part.bytes), 9), part.name);
    offset_bytes += part.bytes;
  }
  const int spare_bytes = row.limit_bytes - row.total_bytes;
  out += format("     {} {}  of {} bytes: {}\n", pad_left("total", 8),
                pad_left(with_commas(row.total_bytes), 9), with_commas(row.limit_bytes),
                spare_bytes == 0 ? "fits exactly" : with_commas(spare_bytes) + " to spare");
  if (row.blocks_per_sm > 1) {
    out += says("{} bytes are the share of each of the {} blocks that an SM holds.", row.limit_bytes,
                row.blocks_per_sm);
  }
  if (row.epilogue_aliases_stages) out += says("The epilogue has no part of its own: it reuses the stages.");
  return out;
}

std::string our_rows(const std::vector<RowFacts>& ours, const PictureStyle& style) {
  std::string out = "1. Fourfold: one struct, and its sizeof is the launch size, the depth and this list\n\n";
  if (ours.empty()) out += says("No row of the table has this tile on this architecture.");
  for (std::size_t index = 0; index < ours.size(); ++index) {
    out += describe_row(ours[index], row_label(index, ours.size()), style);
  }
  return out + "\n";
}

// ---- 2. the depth computed apart from the storage --------------------------------------------------------

Kernel kernel_of(const Tile& tile, Epilogue epilogue, bool swap_ab) {
  return {.tile = tile, .epilogue = epilogue, .swap_ab = swap_ab};
}

// The variants stacks ship for one tile. The one explained is the first that overflows, else the finalize
// epilogue.
std::array<Budget, 4> variants_of(const Tile& tile) {
  return {separate::budget_of(kernel_of(tile, Epilogue::finalize, false)),
          separate::budget_of(kernel_of(tile, Epilogue::plain, false)),
          separate::budget_of(kernel_of(tile, Epilogue::finalize, true)),
          separate::budget_of(kernel_of(tile, Epilogue::plain, true))};
}

const Budget& worst_of(const std::array<Budget, 4>& variants) {
  const auto over = std::find_if(variants.begin(), variants.end(),
                                 [](const Budget& budget) { return budget.verdict == Verdict::overflows; });
  return over == variants.end() ? variants.front() : *over;
}

std::string quotient(int dividend, int divisor) {
  const int thousandths = static_cast<int>(1000LL * dividend / divisor);
  const std::string fraction = format("{}", 1000 + thousandths % 1000);
  return format("{}.{}", thousandths / 1000, std::string_view(fraction).substr(1));
}

std::string formula_steps(const Budget& budget) {
  const int room_bytes = separate::kCapacityBytes - budget.carveout_bytes;
  return says("The formula, for the {} epilogue:", separate::epilogue_name(budget.kernel.epilogue)) +
         step("a.", "one stage: A {} + B {} + scales {} and {} + barriers {} = {} bytes", budget.a_bytes,
              budget.b_bytes, budget.scales_a_bytes, budget.scales_b_bytes, separate::kStageBarrierAllowance,
              budget.stage_bytes) +
         step("b.",
              "room: {} - {} for the scheduler - {} for two tensor maps - {} for their barriers = {}, less "
              "{} for the epilogue = {}",
              budget.limit_bytes, separate::kSchedulerAllowance, separate::kTensorMapAllowance,
              separate::kMapReadyAllowance, separate::kCapacityBytes, budget.carveout_bytes, room_bytes) +
         step("c.", "depth: {} / {} = {}, so {} stage{}", room_bytes, budget.stage_bytes,
              quotient(room_bytes, budget.stage_bytes), budget.stages, budget.stages == 1 ? "" : "s");
}

std::string storage_steps(const Budget& budget) {
  const int alignment = budget.kernel.tensor_alignment;
  std::string out =
      says("The storage, declared elsewhere:") +
      step("d.", "tensors: stages {} + epilogue {} = {}; they are aligned to {}, so their struct ends at {}",
           budget.mainloop_bytes, budget.epilogue_bytes, budget.sum_bytes, alignment,
           budget.tensor_block_bytes) +
      step("e.",
           "barriers and the scheduler's answers end at {}; the tensor maps, {} bytes and not {}, at {}",
           budget.maps_offset_bytes, budget.maps_bytes, separate::kTensorMapAllowance, budget.end_bytes) +
      step("f.", "the whole is rounded up to a multiple of {} again, to {} bytes: {}", alignment,
           budget.total_bytes, separate::verdict_text(budget));
  if (budget.verdict != Verdict::overflows) return out;
  Kernel packed = budget.kernel;
  packed.tensor_alignment = 128;
  constexpr std::string_view why =
      "The content is {} bytes and would fit with {} to spare; the two roundings are what breaks it. With "
      "its tensors aligned to 128 the same struct takes {} bytes. Nothing compares the formula with the "
      "struct, so the launch fails at run time with an internal error (cutlass#3096, cutlass#3144).";
  return out + says(why, budget.content_bytes, budget.limit_bytes - budget.content_bytes,
                    separate::budget_of(packed).total_bytes);
}

std::string no_layout_text(const Tile& tile) {
  return says(
      "There is no such kernel for {}: its scale factors come in blocks of {} rows x {} scales, and an "
      "extent that rounds to none leaves no layout, which is a template error.",
      tile_name(tile), separate::kScaleBlockRows, separate::kScaleBlockScales);
}

std::string variant_table(const std::array<Budget, 4>& variants) {
  std::string out = "     epilogue            stages  hand sum  asks for\n";
  for (const Budget& budget : variants) {
    const std::string name = format("{}{}", separate::epilogue_name(budget.kernel.epilogue),
                                    budget.kernel.swap_ab ? ", swap-AB" : "");
    const bool built = budget.total_bytes > 0;
    out += format("     {} {} {} {}  {}\n", pad_right(name, 19), pad_left(format("{}", budget.stages), 6),
                  pad_left(built ? with_commas(budget.sum_bytes) : "-", 9),
                  pad_left(built ? with_commas(budget.total_bytes) : "-", 9), separate::verdict_text(budget));
  }
  return out;
}

std::string separate_budget_text(const Tile& tile, const std::array<Budget, 4>& variants) {
  std::string out = "2. Elsewhere: the depth computed apart from the storage\n\n";
  const Budget& worst = worst_of(variants);
  if (worst.verdict == Verdict::no_scale_layout) return out + no_layout_text(tile) + "\n";
  if (worst.verdict == Verdict::outside_model) {
    return out +
           says("{} is {}: M 128 or 256, N a power of two from 8 to 256, K a power of two from 64 to 512.",
                tile_name(tile), separate::verdict_text(worst)) +
           "\n";
  }
  out += says(
      "A model, in real structs, of the grouped NVFP4 GEMM that FlashInfer and TensorRT-LLM build from "
      "CUTLASS for SM120. Its sizes are this program's own sizeof; it has not been run on a card.");
  out += formula_steps(worst);
  out +=
      worst.verdict == Verdict::too_shallow
          ? says("Fewer than two stages cannot overlap loads with math: that library refuses to compile it.")
          : storage_steps(worst);
  return out + says("All its variants:") + variant_table(variants) +
         says(
             "Here the depth is the deepest whose sizeof fits, and a struct that does not fit does not "
             "compile: FitsSharedMemory<needed, limit> puts both numbers in the compiler's message.") +
         "\n";
}

// ---- 3. the picture --------------------------------------------------------------------------------------

Bar bar_of(const Budget& budget, std::string label) {
  return {.label = std::move(label),
          .parts = {{"operand A", budget.a_bytes * budget.stages},
                    {"operand B", budget.b_bytes * budget.stages},
                    {"scales", (budget.scales_a_bytes + budget.scales_b_bytes) * budget.stages},
                    {"epilogue", budget.epilogue_bytes},
                    {"barriers, tensor maps and padding", budget.total_bytes - budget.sum_bytes}}};
}

std::string picture_text(const Budget* elsewhere, const std::vector<RowFacts>& ours, int limit_bytes,
                         const PictureStyle& style) {
  std::vector<Bar> bars;
  if (elsewhere != nullptr && elsewhere->total_bytes > 0) bars.push_back(bar_of(*elsewhere, "elsewhere"));
  for (std::size_t index = 0; index < ours.size(); ++index) {
    bars.push_back({.label = row_label(index, ours.size()), .parts = ours[index].parts});
  }
  const std::string heading = "3. The picture\n\n";
  if (bars.empty()) return heading + says("There is nothing to draw.") + "\n";
  return heading + draw_bars_with_legend(bars, limit_bytes, style) + "\n";
}

// ---- 4 to 6. the other ways it goes wrong ----------------------------------------------------------------

std::string folding_line(const Folding& folding, std::string_view format_name) {
  std::string text =
      format("a scale per {} values ({}): {} / {} = {} scales a row, {} / {} = {} block{} of {}. ",
             folding.vector, format_name, folding.k, folding.vector, folding.scales_per_row,
             folding.scales_per_row, separate::kScaleBlockScales, folding.block_extent,
             folding.block_extent == 1 ? "" : "s", separate::kScaleBlockScales);
  if (folding.has_form_elsewhere) {
    text += "A layout exists elsewhere.";
  } else {
    text += format(
        "An empty extent: no layout elsewhere. A block folded to min({}, {}) = {} scales would be one; the "
        "patches that did so were not merged (cutlass#3121, cutlass#3196).",
        folding.scales_per_row, separate::kScaleBlockScales, folding.folded_scales);
  }
  return paragraph(text, 5, "   -");
}

std::string folding_text(const Tile& tile) {
  const Folding nvfp4 = separate::folding_at(tile.k, 16);
  const Folding mxfp4 = separate::folding_at(tile.k, 32);
  std::string out = format("4. Scale factors at K = {}\n\n", tile.k);
  out += folding_line(nvfp4, "NVFP4") + folding_line(mxfp4, "MXFP4");
  out += says(
      "Here a record of {} rows x {} columns carries its scales inside: {} a row for NVFP4 ({} bytes), {} "
      "a row for MXFP4 ({} bytes).",
      kRecordRows, kRecordColumns, nvfp4.record_scales_per_row, nvfp4.record_scale_bytes,
      mxfp4.record_scales_per_row, mxfp4.record_scale_bytes);
  if (nvfp4.has_form_here) {
    out += says("K = {} is {} record{}; every multiple of {} has a form, 64 included.", tile.k,
                tile.k / kRecordColumns, tile.k == kRecordColumns ? "" : "s", kRecordColumns);
  } else {
    out += says("K = {} is not a multiple of {}, so it has no form here.", tile.k, kRecordColumns);
  }
  return out + "\n";
}

std::string tensor_map_text() {
  return "5. Tensor maps\n\n" +
         says(
             "Other kernels describe every operand to the copy engine with a tensor map, rewrite the maps "
             "for each expert and fail to start when one is refused. There are none here: a stage is whole "
             "records, contiguous along K, and arrives by plain 1-D bulk copies, whose sizes are multiples "
             "of 16 by the record's type. What cannot be built wrongly is not built.") +
         "\n";
}

std::string naming_text(const Tile& tile) {
  const std::string with_fp4 = tile_name({tile.m, tile.n, tile.k / 2}) + "B";
  const std::string with_fp8 = tile_name(tile) + "B";
  return "6. How others spell this tile\n\n" +
         says(
             "This page counts K in elements, as CUTLASS does. FlashInfer and TensorRT-LLM count K in bytes "
             "of the activation type: {} is \"{}\" there with FP4 activations and \"{}\" with FP8. They "
             "also name tokens first unless A and B are swapped; here M is always weight rows and N tokens.",
             tile_name(tile), with_fp4, with_fp8);
}

bool is_sm12x(const ArchFacts& arch) { return arch == kSm120 || arch == kSm121; }

}  // namespace

std::string explain(const Tile& tile, const ArchFacts& arch, const std::vector<RowFacts>& rows,
                    const PictureStyle& style) {
  std::vector<RowFacts> ours;
  for (const RowFacts& row : rows) {
    if (tile_of(row) == tile && row.arch == arch.name) ours.push_back(row);
  }
  std::string out = format("{} on {}: a block may use {} bytes of shared memory\n\n", tile_name(tile),
                           arch.name, with_commas(arch.smem_bytes_per_block));
  out += our_rows(ours, style);
  if (is_sm12x(arch)) {
    const std::array<Budget, 4> variants = variants_of(tile);
    out += separate_budget_text(tile, variants);
    out += picture_text(&worst_of(variants), ours, arch.smem_bytes_per_block, style);
  } else {
    out += "2. Elsewhere: the depth computed apart from the storage\n\n" +
           says("The kernels this page models exist for sm120 and sm121 alone.") + "\n";
    out += picture_text(nullptr, ours, arch.smem_bytes_per_block, style);
  }
  return out + folding_text(tile) + tensor_map_text() + naming_text(tile);
}

std::string overflow_picture(const PictureStyle& style) {
  const Budget budget = separate::budget_of(kernel_of({256, 128, 128}, Epilogue::finalize, false));
  return format("256x128x128 with a fused finalize epilogue: {} stages by formula, {} bytes by sizeof\n\n",
                budget.stages, with_commas(budget.total_bytes)) +
         draw_bars_with_legend({bar_of(budget, "elsewhere")}, budget.limit_bytes, style);
}

}  // namespace fourfold::plan
