#include "plan/separate_budget.h"

#include <array>
#include <utility>

#include "base/format.h"

namespace fourfold::plan::separate {
namespace {

// The grid of kernels compiled into the table below.
constexpr std::array kTileM{128, 256};
constexpr std::array kTileN{8, 16, 32, 64, 128, 256};
constexpr std::array kTileK{64, 128, 256, 512};
constexpr std::array kOperands{Operands::nvfp4, Operands::mxfp4, Operands::mxfp8_mxfp4};
constexpr std::array kEpilogues{Epilogue::plain, Epilogue::finalize};
constexpr std::array kSwapAb{false, true};
constexpr std::array kAlignments{1024, 128};

constexpr std::size_t kKernelCount = kTileM.size() * kTileN.size() * kTileK.size() * kOperands.size() *
                                     kEpilogues.size() * kSwapAb.size() * kAlignments.size();

// Takes one digit of a mixed-radix number: the row of the grid that `index` stands for.
template <class Values>
constexpr auto take(std::size_t& index, const Values& values) {
  const auto value = values[index % values.size()];
  index /= values.size();
  return value;
}

constexpr Kernel kernel_at(std::size_t index) {
  Kernel kernel;
  kernel.tile.m = take(index, kTileM);
  kernel.tile.n = take(index, kTileN);
  kernel.tile.k = take(index, kTileK);
  kernel.operands = take(index, kOperands);
  kernel.epilogue = take(index, kEpilogues);
  kernel.swap_ab = take(index, kSwapAb);
  kernel.tensor_alignment = take(index, kAlignments);
  return kernel;
}

template <std::size_t... Indices>
constexpr std::array<Budget, sizeof...(Indices)> measure_all(std::index_sequence<Indices...>) {
  return {measure<kernel_at(Indices)>()...};
}

constexpr std::array<Budget, kKernelCount> kBudgets = measure_all(std::make_index_sequence<kKernelCount>{});

}  // namespace

Budget budget_of(const Kernel& kernel) {
  Budget missing{.kernel = kernel};
  if (!has_scale_layout(kernel)) {
    missing.verdict = Verdict::no_scale_layout;
    return missing;
  }
  for (const Budget& budget : kBudgets) {
    if (budget.kernel == kernel) return budget;
  }
  return missing;
}

std::string_view operands_name(Operands operands) {
  switch (operands) {
    case Operands::nvfp4: return "nvfp4";
    case Operands::mxfp4: return "mxfp4";
    case Operands::mxfp8_mxfp4: return "mxfp8 x mxfp4";
  }
  return "unknown";
}

std::string_view epilogue_name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::plain: return "plain";
    case Epilogue::finalize: return "finalize";
  }
  return "unknown";
}

std::string verdict_text(const Budget& budget) {
  switch (budget.verdict) {
    case Verdict::fits:
      if (budget.total_bytes == budget.limit_bytes) return "fits exactly";
      return format("fits, {} bytes to spare", with_commas(-budget.over_bytes()));
    case Verdict::overflows: return format("over by {} bytes", with_commas(budget.over_bytes()));
    case Verdict::too_shallow: return format("{} stage where two are required", budget.stages);
    case Verdict::no_scale_layout: return "no layout for the scale factors";
    case Verdict::outside_model: return "not among the tiles of this model";
  }
  return "unknown";
}

}  // namespace fourfold::plan::separate
