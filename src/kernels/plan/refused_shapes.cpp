// Shapes considered and refused: each is the row type that would have been, so the bytes are a sizeof and no
// estimate.
#include "base/format.h"
#include "kernels/moe/chips.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/plan/row_table.h"
#include "plan/separate_budget.h"

namespace fourfold::kernels {
namespace {

using moe::W4a16Mma;
using moe::W4a16Wgmma;
using moe::W4a4;
using plan::RefusedShape;
using record::Mxfp4;
using record::Nvfp4;

// 8 math and 4 producer warps, as the named tiles have.
template <class Arch, class Path, class Format, int M, int N, int K, int Blocks = 1>
using Shape = moe_gemm::TileShape<Arch, Path, Format, M, N, K, 8, 4, Blocks>;

// The least a pipeline of so many stages can do with: two token panels (FP4 tokens travel in the stages
// themselves).
template <class S, int Stages>
inline constexpr int kNeeds = static_cast<int>(sizeof(moe_gemm::TileStorage<S, Stages, 2>));

template <class S, int Stages>
RefusedShape refused(std::string reason) {
  return {.kernel = "moe_gemm",
          .m = S::m,
          .n = S::n,
          .k = S::k,
          .path = S::Path::name,
          .format = S::Format::name,
          .arch = std::string(S::Arch::name),
          .needs_bytes = kNeeds<S, Stages>,
          .limit_bytes = S::smem_limit,
          .reason = std::move(reason)};
}

// Refused for its bytes: a shape that in fact fits would be a wrong reason, and does not compile.
template <class S, int Stages>
RefusedShape too_large(const char* what) {
  static_assert(kNeeds<S, Stages> > S::smem_limit);
  return refused<S, Stages>(fourfold::format("{}, at {} stages", what, Stages));
}

// Refused for its sums: the accumulators alone take more registers than a thread has.
template <class S>
RefusedShape too_many_sums() {
  constexpr int sums = S::m * S::n / (32 * S::math_warps);
  static_assert(sums > plan::kRegistersPerThreadMax);
  return refused<S, 2>(fourfold::format("its sums take {} registers of each math thread, and a thread has {}",
                                        sums, plan::kRegistersPerThreadMax));
}

// One notch beyond the rows in each direction.
template <class Arch>
void add_beyond_rows(std::vector<RefusedShape>& shapes) {
  constexpr const char* longer = "twice the K of a named tile";
  shapes.push_back(too_large<Shape<Arch, W4a4, Nvfp4, 256, 128, 256>, 2>(longer));
  shapes.push_back(too_large<Shape<Arch, W4a4, Nvfp4, 128, 128, 512>, 2>(longer));
  shapes.push_back(too_large<Shape<Arch, W4a4, Nvfp4, 256, 128, 128>, 4>("one stage more than the row has"));
  shapes.push_back(
      too_large<Shape<Arch, W4a4, Nvfp4, 256, 128, 128, 2>, 2>("two blocks of this tile on an SM"));
  shapes.push_back(too_many_sums<Shape<Arch, W4a4, Nvfp4, 256, 256, 64>>());
  shapes.push_back(
      too_large<Shape<Arch, W4a16Mma, Nvfp4, 128, 512, 64>, 2>("twice the tokens of a named tile"));
  shapes.push_back(too_large<Shape<Arch, W4a16Mma, Nvfp4, 256, 128, 256>, 2>(longer));
  shapes.push_back(
      too_large<Shape<Arch, W4a16Mma, Nvfp4, 128, 256, 256>, 2>("twice the tokens of 128x128x256"));
  shapes.push_back(too_large<Shape<Arch, W4a16Mma, Mxfp4, 256, 128, 256>, 2>(longer));
  shapes.push_back(too_large<Shape<Arch, W4a16Mma, Mxfp4, 128, 128, 512>, 2>(longer));
  shapes.push_back(too_many_sums<Shape<Arch, W4a16Mma, Nvfp4, 256, 256, 64>>());
}

// The tile that fits here and fails elsewhere: the same MxNxK with the depth others compute.
void add_the_famous_one(const plan::ArchFacts& arch, std::vector<RefusedShape>& shapes) {
  using namespace plan::separate;
  const Budget budget = budget_of({.tile = {256, 128, 128}, .epilogue = Epilogue::finalize});
  shapes.push_back({.kernel = "grouped GEMM elsewhere",
                    .m = 256,
                    .n = 128,
                    .k = 128,
                    .path = "w4a4",
                    .format = "nvfp4",
                    .arch = std::string(arch.name),
                    .needs_bytes = budget.total_bytes,
                    .limit_bytes = budget.limit_bytes,
                    .reason = fourfold::format(
                        "{} stages by a formula apart from the storage; Fourfold's row of this tile fits "
                        "(fourfold plan --explain 256x128x128)",
                        budget.stages)});
}

// A path the chip lacks the instruction for. The bytes say whether they would have been the obstacle.
template <class S>
RefusedShape no_instruction(const char* why) {
  return refused<S, 2>(why);
}

template <class Arch>
void add_missing_paths(std::vector<RefusedShape>& shapes) {
  if constexpr (!Arch::has_wgmma) {
    constexpr const char* why =
        "wgmma is an instruction of Hopper alone; the mma row of this tile takes its place";
    shapes.push_back(no_instruction<Shape<Arch, W4a16Wgmma, Nvfp4, 128, 128, 64>>(why));
    shapes.push_back(no_instruction<Shape<Arch, W4a16Wgmma, Mxfp4, 128, 128, 64>>(why));
    shapes.push_back(no_instruction<Shape<Arch, W4a16Wgmma, Nvfp4, 256, 128, 64>>(why));
  }
  shapes.push_back(no_instruction<Shape<Arch, W4a4, Mxfp4, 128, 128, 128>>(
      "MXFP4 activations exist as one verified row, 128x128x64; W4A16 serves MXFP4 weights"));
}

RefusedShape no_kernels(const plan::ArchFacts& arch) {
  RefusedShape shape = refused<Shape<plan::Sm120, W4a4, Nvfp4, 256, 128, 128>, 2>(
      arch.has_bulk_copy
          ? "no kernels are compiled for this chip, whose FP4 path is tcgen05; there are some for sm90, "
            "sm120 and sm121"
          : "this chip has no bulk copies; kernels exist for sm90, sm120 and sm121");
  shape.arch = std::string(arch.name);
  shape.limit_bytes = arch.smem_bytes_per_block;
  return shape;
}

}  // namespace

std::vector<plan::RefusedShape> refused_shapes(const plan::ArchFacts& arch) {
  std::vector<RefusedShape> shapes;
  if (arch == plan::kSm90) {
    add_beyond_rows<moe::Hopper::Shared>(shapes);
    shapes.push_back(too_many_sums<Shape<plan::Sm90, W4a16Wgmma, Nvfp4, 256, 256, 64>>());
    add_missing_paths<moe::Hopper::Own>(shapes);
  } else if (arch == plan::kSm120) {
    add_the_famous_one(arch, shapes);
    add_beyond_rows<plan::Sm120>(shapes);
    add_missing_paths<plan::Sm120>(shapes);
  } else if (arch == plan::kSm121) {
    add_the_famous_one(arch, shapes);
    add_beyond_rows<plan::Sm121>(shapes);
    add_missing_paths<plan::Sm121>(shapes);
  } else {
    shapes.push_back(no_kernels(arch));
  }
  return shapes;
}

}  // namespace fourfold::kernels
