// The proof of the all-reduce: every rank in one launch, side by side, as blocks of one grid. Several calls
// of different sizes follow each other, so that both halves of the buffers are used and used again. Plain f32
// additions in the order of ranks: bit for bit.
#include <algorithm>
#include <vector>

#include "base/format.h"
#include "kernels/all_reduce/all_reduce_params.h"
#include "kernels/dense/reference.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using all_reduce::AllReduceParams;
using all_reduce::RankPlaces;
using Place = kernels::Memory::Place;
constexpr float kEpsilon = 1e-6f;
constexpr int kCalls = 4;

struct Setup {
  AllReduceParams params{};
  bool host = false, norms = false;
  std::size_t count = 0;  // numbers that fit
};

std::uint32_t* zeros(StepRun& run, std::size_t count, Place place, const char* name) {
  auto* words = run.take_shared<std::uint32_t>(count, place, name);
  run.write(words, std::vector<std::uint32_t>(count));
  return words;
}

// rows_most rows of `columns`, for each of the ranks.
Setup set_up(StepRun& run, int ranks, int blocks, int rows_most, int columns) {
  Setup setup;
  AllReduceParams& params = setup.params;
  const std::string_view way = run.test().row.role;
  setup.host = way.starts_with("host");
  setup.norms = way.ends_with("norm");
  const bool slices = way == "two_shot";
  setup.count = static_cast<std::size_t>(rows_most) * static_cast<std::size_t>(columns);
  params.ranks = ranks;
  params.blocks = blocks;
  params.columns = columns;
  params.epsilon = kEpsilon;
  params.capacity = static_cast<std::int64_t>(setup.count / 4);
  if (slices) params.capacity = (params.capacity + ranks - 1) / ranks;
  params.wait_nanoseconds = 60'000'000'000;
  const auto wide = static_cast<std::size_t>(ranks), each = static_cast<std::size_t>(blocks);
  const std::size_t buffer = 2 * wide * static_cast<std::size_t>(params.capacity);
  params.stop = zeros(run, 1, Place::host, "stop");
  device::F32x4* box = nullptr;
  std::uint32_t* box_flags = nullptr;
  if (setup.host) {
    box = run.take_shared<device::F32x4>(buffer, Place::host, "mailbox");
    box_flags = zeros(run, 2 * wide * each, Place::host, "mailbox flags");
  }
  for (int r = 0; r < ranks; ++r) {
    RankPlaces& rank = params.rank[r];
    rank.x = run.take<float>(setup.count, "x");
    rank.part = run.take<float>(setup.count, "part");
    if (setup.norms) rank.normed = run.take<std::uint16_t>(setup.count, "normed");
    rank.receive = setup.host ? box : run.take_shared<device::F32x4>(buffer, Place::device, "received");
    if (slices) rank.sums = run.take_shared<device::F32x4>(buffer, Place::device, "sums");
    rank.flags = setup.host ? box_flags : zeros(run, 2 * wide * each, Place::device, "flags");
    rank.epochs = run.upload(std::vector<std::uint32_t>(each, 1), "epochs");
    rank.report = zeros(run, wide, Place::host, "report");
  }
  return setup;
}

void compare_norm(StepRun& run, const Setup& setup, int rank, const std::vector<float>& x,
                  const std::vector<float>& weight) {
  const auto got = run.written(setup.params.rank[rank].normed, x.size());
  const auto columns = static_cast<std::size_t>(setup.params.columns);
  for (std::size_t at = 0; at < x.size(); at += columns) {
    const auto want = dense::normed_row<Host>(x.data() + at, weight.data(), setup.params.columns, kEpsilon);
    for (std::size_t c = 0; c < columns; ++c)
      compare_bf16(run.result(), got[at + c], {want[c].bits, want[c].value, want[c].error + 0x1p-149});
  }
}

}  // namespace

void prove_all_reduce(StepRun& run) {
  constexpr int ranks_of[] = {2, 4, 3, 8}, columns_of[] = {64, 1024, 328, 136};
  const int variant = run.test().variant % 4;
  const int ranks = ranks_of[variant], columns = columns_of[variant], blocks = 1 + run.below(3);
  constexpr int rows_most = 5;
  Setup setup = set_up(run, ranks, blocks, rows_most, columns);
  // All ranks are in one launch, so that no rank's blocks are kept out by whoever comes early.
  setup.params.overlaps = variant % 2;
  run.result().shape =
      fourfold::format("{} ranks, {} calls of 1 to {} rows of {}{}", ranks, kCalls, rows_most, columns,
                       setup.params.overlaps != 0 ? ", successors early" : "");
  std::vector<float> weight;
  for (int c = 0; c < columns; ++c) weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  if (setup.norms) setup.params.norm_weight = run.upload(weight, "weight");
  std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    // Every rank has its own x here, so that one that got another's sum is noticed.
    x[static_cast<std::size_t>(r)] = run.normals(setup.count, 3.0);
    run.write(setup.params.rank[r].x, x[static_cast<std::size_t>(r)]);
  }
  for (int call = 0; call < kCalls; ++call) {
    setup.params.rows = call == 1 ? rows_most : 1 + run.below(rows_most);
    const std::size_t count = static_cast<std::size_t>(setup.params.rows * columns);
    std::vector<float> sum;
    for (int r = 0; r < ranks; ++r) {
      const std::vector<float> part = run.normals(count, r % 2 == 0 ? 1.0 : 1e3);
      run.write(setup.params.rank[r].part, part);
      for (std::size_t i = 0; i < count; ++i)
        if (r == 0)
          sum.push_back(part[i]);
        else
          sum[i] = Host::add(sum[i], part[i]);
    }
    run.launch(run.test().row.row, ranks * blocks, setup.params);
    for (int r = 0; r < ranks; ++r) {
      std::vector<float>& mine = x[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < count; ++i) mine[i] = Host::add(mine[i], sum[i]);
      const auto got = run.written(setup.params.rank[r].x, setup.count);
      for (std::size_t i = 0; i < setup.count; ++i) run.compare_bits(got[i], mine[i]);
      for (const float left : run.written(setup.params.rank[r].part, count)) run.compare_bits(left, 0.0f);
      if (setup.norms)
        compare_norm(run, setup, r, {mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(count)},
                     weight);
    }
  }
}

// Parts whose rows are wider than what is gathered, into rows wider still.
void prove_all_gather(StepRun& run) {
  constexpr int ranks_of[] = {2, 4, 3, 8}, columns_of[] = {61, 800, 320, 7};
  const int variant = run.test().variant % 4;
  const int ranks = ranks_of[variant], columns = columns_of[variant], stride = (columns + 7) / 4 * 4;
  constexpr int rows_most = 3;
  Setup setup = set_up(run, ranks, 1 + run.below(3), rows_most, stride);
  run.result().shape =
      fourfold::format("{} ranks, {} calls of 1 to {} rows of {}", ranks, kCalls, rows_most, columns);
  AllReduceParams& params = setup.params;
  params.gather_columns = columns;
  params.out_stride = ranks * columns + 5;
  for (int r = 0; r < ranks; ++r)
    params.rank[r].x = run.take<float>(static_cast<std::size_t>(rows_most * params.out_stride), "gathered");
  for (int call = 0; call < kCalls; ++call) {
    params.rows = 1 + run.below(rows_most);
    std::vector<std::vector<float>> parts;
    for (int r = 0; r < ranks; ++r) {
      parts.push_back(run.normals(static_cast<std::size_t>(params.rows * stride)));
      run.write(params.rank[r].part, parts.back());
    }
    run.launch(run.test().row.row, ranks * params.blocks, params);
    for (int r = 0; r < ranks; ++r)
      for (int row = 0; row < params.rows; ++row) {
        const auto got = run.written(params.rank[r].x + static_cast<std::int64_t>(row) * params.out_stride,
                                     static_cast<std::size_t>(ranks * columns));
        for (int c = 0; c < ranks * columns; ++c)
          run.compare_bits(got[static_cast<std::size_t>(c)],
                           parts[static_cast<std::size_t>(c / columns)]
                                [static_cast<std::size_t>(row * stride + c % columns)]);
      }
  }
}

}  // namespace fourfold::verify
