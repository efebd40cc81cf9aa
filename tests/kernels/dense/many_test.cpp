#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/dense/choose_many.h"
#include "kernels/launch/sim_row.h"
#include "tests/kernels/dense/dense_case.h"

namespace fourfold::dense {
namespace {

using test::DenseMatrix;
using test::size;
using Arch = plan::Sm120;

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* memory = device.allocate_array<T>(std::max<std::size_t>(values.size(), 1), name);
  device.write_from_host(memory, values.data(), values.size() * sizeof(T));
  return memory;
}
// A predecessor in the chain of dependent launches wrote this: it may be read after the wait only.
template <class T>
T* written_by_predecessor(sim::Device& device, const std::vector<T>& values, const char* name) {
  const T* from = upload(device, values, "source");
  T* to = device.allocate_array<T>(std::max<std::size_t>(values.size(), 1), name);
  sim::LaunchConfig config;
  config.threads = 32;
  config.pdl = true;
  config.name = "predecessor";
  device.launch(config, [&](sim::Lane& lane) {
    const device::SimCta cta(lane);
    cta.wait_predecessors();
    cta.release_successors();
    for (std::size_t i = size(cta.lane()); i < values.size() * sizeof(T) / 4; i += 32)
      cta.store(reinterpret_cast<std::uint32_t*>(to) + i,
                cta.load(reinterpret_cast<const std::uint32_t*>(from) + i));
  });
  return to;
}

void expect_no_conflicts(const sim::LaunchStats& stats) {
  EXPECT_EQ(stats.uncounted_accesses, 0u);
  for (const auto& site : stats.traffic)
    EXPECT_EQ(site.wavefronts, site.ideal) << site.file << ":" << site.line << ", " << site.accesses;
}

// A matrix, its tokens and everything an epilogue reads.
struct Case {
  DenseMatrix matrix;
  int tokens;
  PlainOp op = PlainOp::store_f32;
  std::vector<Bf16> x;
  std::vector<float> row_scale, before, gates;
  int out_words() const { return tokens * matrix.plain / (op == PlainOp::store_bf16 ? 2 : 1); }
};
constexpr int kGateStride = 3;

template <class Format>
Case random_case(std::uint64_t seed, int plain, int neurons, int columns, int tokens, PlainOp op,
                 bool has_row_scale, bool has_gate) {
  Random random(seed);
  Case made{test::random_dense<Format>(random, plain, neurons, columns), tokens, op, {}, {}, {}, {}};
  made.x = verify::random_tokens(random, tokens, columns);
  for (int i = 0; i < tokens * plain; ++i) made.before.push_back(static_cast<float>(random.normal() * 100.0));
  if (has_row_scale)
    for (int row = 0; row < made.matrix.rows(); ++row)
      made.row_scale.push_back(static_cast<float>(random.uniform(0.5, 2.0)));
  if (has_gate)
    for (int i = 0; i < tokens * kGateStride; ++i)
      made.gates.push_back(static_cast<float>(random.normal() * 2.0));
  return made;
}

// What a run leaves in memory: the plain rows, whatever their type, and the gate_up rows.
struct Result {
  std::vector<std::uint32_t> out, gate_up;
  bool operator==(const Result&) const = default;
};

// Parameters for the tokens from `first` on, on memory that holds all of them.
struct Memory {
  DenseParams params{};
  std::uint32_t* out;
  std::uint32_t* gate_up;

  Memory(sim::Device& device, const Case& c) {
    const DenseMatrix& m = c.matrix;
    params.weights = upload(device, m.records, "weights");
    if (!c.row_scale.empty()) params.row_scale = upload(device, c.row_scale, "row scale");
    params.tokens = written_by_predecessor(device, c.x, "tokens");
    if (!c.gates.empty()) params.token_gate = written_by_predecessor(device, c.gates, "gates");
    out = c.op == PlainOp::add_f32
              ? reinterpret_cast<std::uint32_t*>(written_by_predecessor(device, c.before, "out"))
              : device.allocate_array<std::uint32_t>(size(c.out_words()) + 1, "out");
    gate_up = device.allocate_array<std::uint32_t>(size(c.tokens) * size(m.neurons) / 2 + 1, "gate_up");
    params.out = out;
    params.gate_up_out = reinterpret_cast<std::uint16_t*>(gate_up);
    params.scale = 0.75f;
    params.scale_gate = 1.5f;
    params.scale_up = 0.3f;
    params.op = c.op;
    params.strips = m.strips();
    params.plain_strips = m.plain_strips();
    params.records = m.columns / record::kColumns;
    params.token_count = c.tokens;
    params.token_stride = m.columns;
    params.out_stride = m.plain;
    params.gate_up_stride = m.neurons;
    params.token_gate_stride = kGateStride;
  }
  Result download(const sim::Device& device, const Case& c) const {
    Result result{std::vector<std::uint32_t>(size(c.out_words())),
                  std::vector<std::uint32_t>(size(c.tokens) * size(c.matrix.neurons) / 2)};
    device.read_to_host(result.out.data(), out, result.out.size() * 4);
    device.read_to_host(result.gate_up.data(), gate_up, result.gate_up.size() * 4);
    return result;
  }
};

// The same tokens, eight at a time, through dense_few.
template <class Format>
Result run_few(const Case& c) {
  using Row = FewRow<Arch, Format, GivenRows, 2, 8, record::kHasBlockScales<Format> ? 2 : 1>;
  using Half = FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>;
  sim::Device device;
  Memory memory(device, c);
  for (int group = 0; group < groups_of(c.tokens); ++group) {
    DenseParams part = memory.params;
    const std::int64_t first = 8 * group;
    part.tokens = static_cast<const std::uint16_t*>(part.tokens) + first * part.token_stride;
    part.out = static_cast<unsigned char*>(part.out) +
               first * part.out_stride * (c.op == PlainOp::store_bf16 ? 2 : 4);
    part.gate_up_out += first * part.gate_up_stride;
    if (part.token_gate) part.token_gate += first * kGateStride;
    part.token_count = std::min(8, c.tokens - 8 * group);
    if constexpr (std::is_same_v<Format, record::Bf16Format>)
      kernels::run_on_sim<Half>(device, 3, part);
    else
      kernels::run_on_sim<Row>(device, 3, part);
  }
  return memory.download(device, c);
}

// shares: of the units; the grid is that many times segments and parts.
template <class Row>
Result run_many(const Case& c, int shares, std::uint64_t seed, int sum_blocks = 3) {
  sim::Device device;
  device.set_seed(seed);
  Memory memory(device, c);
  const int segments = segments_of(memory.params.records);
  const int parts = (groups_of(c.tokens) + Row::groups - 1) / Row::groups;
  ManyParams params{memory.params, nullptr};
  const std::size_t bytes = partial_bytes(c.matrix.rows(), c.matrix.columns, c.tokens);
  params.partial = device.allocate_array<device::F32x4>(bytes / sizeof(device::F32x4), "partial");
  expect_no_conflicts(kernels::run_on_sim<Row>(device, shares * segments * parts, params));
  if (segments > 1)
    expect_no_conflicts(kernels::run_on_sim<SumRow<Arch, typename Row::Format>>(device, sum_blocks, params));
  return memory.download(device, c);
}

template <class Row>
Result run_tall(const Case& c, int shares, std::uint64_t seed) {
  sim::Device device;
  device.set_seed(seed);
  Memory memory(device, c);
  const int parts = (groups_of(c.tokens) + Row::groups - 1) / Row::groups;
  expect_no_conflicts(kernels::run_on_sim<Row>(device, shares * parts, ManyParams{memory.params, nullptr}));
  return memory.download(device, c);
}

template <class Row>
void check_many(const Case& c, int shares, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << ": " << c.matrix.rows() << " x " << c.matrix.columns
                                  << ", " << c.tokens << " tokens, " << shares << " shares, seed " << seed);
  EXPECT_TRUE(run_many<Row>(c, shares, seed) == run_few<typename Row::Format>(c));
}

// Every row, K below, at and beyond a segment, with a ragged end; tokens that fill a row and that do not.
TEST(DenseMany, GivesTheBitsOfDenseFew) {
  std::uint64_t seed = 1;
  moe::for_each_row(ManyRows<Arch>{}, [&]<class Row>() {
    using Format = typename Row::Format;
    const auto plain = [&](int rows, int columns, int tokens) {
      return random_case<Format>(seed++, rows, 0, columns, tokens, PlainOp::store_f32, false, false);
    };
    check_many<Row>(plain(96, 64, Row::n == 16 ? 9 : Row::n - 15), 2, seed);
    check_many<Row>(plain(160, 512, Row::n), 3, seed);
    check_many<Row>(plain(96, 576, Row::n - 3), 1, seed);
  });
}

TEST(DenseMany, TakesLongRowsInManySegments) {
  const auto c = [](auto format, int columns, int tokens) {
    return random_case<decltype(format)>(90, 64, 0, columns, tokens, PlainOp::store_f32, false, false);
  };
  check_many<ManyRow<Arch, record::Bf16Format, 32, 1, 1>>(c(record::Bf16Format{}, 2048, 17), 3, 91);
  check_many<ManyRow<Arch, record::Nvfp4, 48, 2, 1>>(c(record::Nvfp4{}, 2048, 33), 1, 92);
  check_many<ManyRow<Arch, record::Fp8Format, 16, 2, 1>>(c(record::Fp8Format{}, 4672, 10), 2, 93);
}

// More tokens than a block holds are parts, as even as groups of eight allow.
TEST(DenseMany, TakesMoreThan64TokensInParts) {
  std::uint64_t seed = 100;
  const auto check = [&]<class Row>(int tokens, int columns) {
    check_many<Row>(
        random_case<typename Row::Format>(seed, 96, 0, columns, tokens, PlainOp::add_f32, false, true), 2,
        seed);
    ++seed;
  };
  check.operator()<ManyRow<Arch, record::Bf16Format, 64, 2, 1>>(65, 128);
  check.operator()<ManyRow<Arch, record::Bf16Format, 48, 2, 1>>(96, 576);
  check.operator()<ManyRow<Arch, record::Nvfp4, 64, 2, 1>>(128, 192);
  check.operator()<ManyRow<Arch, record::Fp8Format, 64, 2, 1>>(101, 576);
  check.operator()<ManyRow<Arch, record::Bf16Format, 16, 1, 1>>(128, 64);
}

// Blocks with many units a warp, warps without a unit, blocks without one; more blocks than work.
TEST(DenseMany, SameBitsOnEveryGrid) {
  const auto check = [&]<class Row>(int rows, int tokens) {
    const Case c =
        random_case<typename Row::Format>(7, rows, 0, 576, tokens, PlainOp::store_f32, false, false);
    const Result few = run_few<typename Row::Format>(c);
    for (const int shares : {1, 2, 5, rows / 16 + 1})
      EXPECT_TRUE(run_many<Row>(c, shares, size(shares), 2 * shares - 1) == few)
          << Row::name() << " " << shares;
  };
  check.operator()<ManyRow<Arch, record::Bf16Format, 16, 1, 1>>(288, 12);
  check.operator()<ManyRow<Arch, record::Bf16Format, 64, 2, 1>>(416, 50);
  check.operator()<ManyRow<Arch, record::Nvfp4, 32, 2, 2>>(544, 23);
}

// A token's bits do not depend on its neighbours.
TEST(DenseMany, SameBitsInAnotherBatch) {
  using Wide = ManyRow<Arch, record::Bf16Format, 48, 2, 1>;
  using Narrow = ManyRow<Arch, record::Bf16Format, 16, 1, 1>;
  const Case all = random_case<record::Bf16Format>(8, 64, 0, 576, 40, PlainOp::store_f32, false, false);
  const Result together = run_many<Wide>(all, 2, 1);
  Case some = all;
  some.tokens = 11;
  some.x.assign(all.x.begin() + 21 * 576, all.x.begin() + 32 * 576);
  const Result alone = run_many<Narrow>(some, 3, 2);
  EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), together.out.begin() + 21 * 64));
}

TEST(DenseMany, FinishesRowsAsAsked) {
  std::uint64_t seed = 20;
  const auto check = [&]<class Row>() {
    for (const int columns : {320, 640}) {  // finished by dense_many, and by dense_sum
      const auto made = [&](int plain, int neurons, int tokens, PlainOp op, bool row_scale, bool gate) {
        return random_case<typename Row::Format>(seed++, plain, neurons, columns, tokens, op, row_scale,
                                                 gate);
      };
      check_many<Row>(made(96, 64, Row::n - 2, PlainOp::store_f32, true, false), 2, seed);
      check_many<Row>(made(64, 0, Row::n, PlainOp::add_f32, false, true), 1, seed);
      check_many<Row>(made(32, 32, Row::n - 5, PlainOp::add_f32, true, false), 2, seed);
      check_many<Row>(made(64, 32, Row::n - 7, PlainOp::store_bf16, false, false), 3, seed);
      check_many<Row>(made(0, 64, Row::n - 1, PlainOp::store_f32, true, false), 1, seed);
    }
  };
  check.operator()<ManyRow<Arch, record::Bf16Format, 16, 1, 1>>();
  check.operator()<ManyRow<Arch, record::Bf16Format, 48, 2, 1>>();
  check.operator()<ManyRow<Arch, record::Fp8Format, 32, 2, 1>>();
  check.operator()<ManyRow<Arch, record::Nvfp4, 16, 2, 2>>();
  check.operator()<ManyRow<Arch, record::Nvfp4, 64, 2, 1>>();
}

// ---- with the norm that follows ----

// dense_sum and norm_rows, or both in one: the residual stream and the normed rows.
template <class Row, bool Together>
std::pair<Result, std::vector<std::uint16_t>> run_sum_norm(const Case& c, std::uint64_t seed) {
  using Format = typename Row::Format;
  sim::Device device;
  device.set_seed(seed);
  Memory memory(device, c);
  const int rows = c.matrix.rows();
  ManyParams params{memory.params, nullptr};
  params.partial =
      device.allocate_array<device::F32x4>(partial_bytes(rows, c.matrix.columns, c.tokens) / 16, "partial");
  std::vector<float> weight;
  for (int i = 0; i < rows; ++i) weight.push_back(0.5f + static_cast<float>(i % 7) / 8.0f);
  params.dense.norm_weight = upload(device, weight, "norm weight");
  params.dense.epsilon = 1e-6f;
  std::vector<std::uint16_t> normed(size(c.tokens) * size(rows));
  params.dense.normed_out = device.allocate_array<std::uint16_t>(normed.size(), "normed");
  kernels::run_on_sim<Row>(device, 2 * segments_of(params.dense.records), params);
  if constexpr (Together) {
    expect_no_conflicts(kernels::run_on_sim<SumNormRow<Arch, Format>>(device, c.tokens, params));
  } else {
    kernels::run_on_sim<SumRow<Arch, Format>>(device, 3, params);
    kernels::run_on_sim<NormRow<Arch>>(
        device, c.tokens,
        NormParams{reinterpret_cast<float*>(memory.out), nullptr, params.dense.norm_weight,
                   params.dense.normed_out, 1e-6f, NormAdd::none, rows});
  }
  device.read_to_host(normed.data(), params.dense.normed_out, normed.size() * 2);
  return {memory.download(device, c), normed};
}

template <class Row>
void check_sum_norm(int rows, int columns, int tokens, bool row_scale, bool gate, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << ": " << rows << " x " << columns << ", " << tokens
                                  << " tokens");
  const Case c =
      random_case<typename Row::Format>(seed, rows, 0, columns, tokens, PlainOp::add_f32, row_scale, gate);
  EXPECT_TRUE((run_sum_norm<Row, true>(c, seed)) == (run_sum_norm<Row, false>(c, seed + 1)));
}

TEST(DenseSumNorm, GivesTheBitsOfSumAndNorm) {
  check_sum_norm<ManyRow<Arch, record::Bf16Format, 16, 1, 1>>(320, 640, 13, false, false, 400);
  check_sum_norm<ManyRow<Arch, record::Bf16Format, 32, 1, 1>>(2304, 576, 18, false, true, 402);
  check_sum_norm<ManyRow<Arch, record::Fp8Format, 16, 2, 1>>(64, 2624, 16, true, false, 404);
  check_sum_norm<ManyRow<Arch, record::Nvfp4, 48, 2, 1>>(576, 1024, 34, true, true, 406);
}

// ---- all of K in a block ----

template <class Row>
void check_tall(const Case& c, int shares, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << ": " << c.matrix.rows() << " x " << c.matrix.columns
                                  << ", " << c.tokens << " tokens, " << shares << " shares, seed " << seed);
  EXPECT_TRUE(run_tall<Row>(c, shares, seed) == run_few<typename Row::Format>(c));
}

// Every row; K shorter than the ring of panels, one segment, several; rounds that are full and that are not.
TEST(DenseTall, GivesTheBitsOfDenseFew) {
  std::uint64_t seed = 300;
  moe::for_each_row(TallRows<Arch>{}, [&]<class Row>() {
    const auto plain = [&](int rows, int columns, int tokens) {
      return random_case<typename Row::Format>(seed++, rows, 0, columns, tokens, PlainOp::store_f32, false,
                                               false);
    };
    check_tall<Row>(plain(352, 64, Row::n == 16 ? 9 : Row::n - 15), 1, seed);
    check_tall<Row>(plain(544, 576, Row::n), 1, seed);
    check_tall<Row>(plain(96, 1088, Row::n - 3), 2, seed);
  });
}

TEST(DenseTall, TakesMoreThan64TokensInParts) {
  const Case bf16 = random_case<record::Bf16Format>(330, 320, 0, 320, 70, PlainOp::store_f32, false, false);
  check_tall<TallRow<Arch, record::Bf16Format, 64>>(bf16, 2, 331);
  const Case nvfp4 = random_case<record::Nvfp4>(332, 288, 0, 576, 128, PlainOp::store_f32, false, false);
  check_tall<TallRow<Arch, record::Nvfp4, 64>>(nvfp4, 1, 333);
}

TEST(DenseTall, SameBitsOnEveryGrid) {
  using Row = TallRow<Arch, record::Bf16Format, 16>;
  const Case c = random_case<record::Bf16Format>(340, 576, 0, 640, 13, PlainOp::store_f32, false, false);
  const Result few = run_few<record::Bf16Format>(c);
  for (const int shares : {1, 2, 5, 20})
    EXPECT_TRUE(run_tall<Row>(c, shares, size(shares)) == few) << shares << " shares";
}

TEST(DenseTall, FinishesRowsAsAsked) {
  std::uint64_t seed = 350;
  const auto check = [&]<class Row>() {
    const auto made = [&](int plain, int neurons, int tokens, PlainOp op, bool row_scale, bool gate) {
      return random_case<typename Row::Format>(seed++, plain, neurons, 640, tokens, op, row_scale, gate);
    };
    check_tall<Row>(made(96, 64, Row::n - 2, PlainOp::store_f32, true, false), 1, seed);
    check_tall<Row>(made(320, 0, Row::n, PlainOp::add_f32, false, true), 1, seed);
    check_tall<Row>(made(64, 32, Row::n - 7, PlainOp::store_bf16, false, false), 2, seed);
  };
  check.operator()<TallRow<Arch, record::Bf16Format, 32>>();
  check.operator()<TallRow<Arch, record::Fp8Format, 16>>();
  check.operator()<TallRow<Arch, record::Nvfp4, 64>>();
}

// ---- two matrices of one input ----

// Both at once; the second case has the tokens of the first.
template <class Pair>
std::pair<Result, Result> run_pair(const Case& first, const Case& second, int first_shares, int second_shares,
                                   std::uint64_t seed) {
  using Sum = SumPairRow<Arch, typename Pair::First::Format, typename Pair::Second::Format>;
  sim::Device device;
  device.set_seed(seed);
  Memory memory(device, first), beside(device, second);
  const auto with_sums = [&](const Memory& of, const Case& c) {
    const std::size_t bytes = partial_bytes(c.matrix.rows(), c.matrix.columns, c.tokens);
    return ManyParams{of.params,
                      device.allocate_array<device::F32x4>(bytes / sizeof(device::F32x4), "partial")};
  };
  ManyPairParams params{with_sums(memory, first), with_sums(beside, second), 0};
  params.second.dense.tokens = params.first.dense.tokens;
  const int segments = segments_of(memory.params.records);
  const int cells = segments * ((groups_of(first.tokens) + Pair::groups - 1) / Pair::groups);
  params.first_blocks = first_shares * cells;
  expect_no_conflicts(kernels::run_on_sim<Pair>(device, params.first_blocks + second_shares * cells, params));
  if (segments > 1)
    expect_no_conflicts(kernels::run_on_sim<Sum>(device, first_shares + second_shares, params));
  return {memory.download(device, first), beside.download(device, second)};
}

// Every row: tokens that fill it and that do not, K of one segment and of several, plain rows beside gate and
// up rows; each matrix as dense_few has it alone.
TEST(DenseManyPair, GivesTheBitsOfDenseFew) {
  std::uint64_t seed = 500;
  moe::for_each_row(ManyPairRows<Arch>{}, [&]<class Pair>() {
    using Format = typename Pair::Second::Format;
    const auto check = [&](int rows, int plain, int neurons, int columns, int tokens, int first_shares,
                           int second_shares) {
      SCOPED_TRACE(testing::Message()
                   << Pair::name() << ": " << columns << " columns, " << tokens << " tokens");
      const Case first =
          random_case<record::Bf16Format>(seed, rows, 0, columns, tokens, PlainOp::store_f32, false, false);
      Case second =
          random_case<Format>(seed + 1, plain, neurons, columns, tokens, PlainOp::store_f32, true, false);
      second.x = first.x;
      const auto [got, beside] = run_pair<Pair>(first, second, first_shares, second_shares, seed);
      EXPECT_TRUE(got == run_few<record::Bf16Format>(first));
      EXPECT_TRUE(beside == run_few<Format>(second));
      seed += 2;
    };
    check(64, 32, 64, 576, Pair::n == 16 ? 9 : Pair::n - 15, 1, 2);
    check(32, 96, 0, 512, Pair::n, 2, 1);
    check(96, 0, 32, 1088, Pair::n + 5, 3, 2);
  });
}

TEST(ChooseManyPair, HasARowForEveryPairOfTheModels) {
  std::vector<std::string> names;
  moe::for_each_row(Rows<moe::Simulated>{}, [&]<class Row>() { names.push_back(Row::name()); });
  const int shapes[][3] = {{64, 12288, 2048},  {288, 1024, 2048}, {512, 2048, 4096},
                           {128, 20480, 3072}, {32, 32, 512},     {64, 4096, 8192}};
  for (const auto& shape : shapes)
    for (const auto form : {WeightFormat::fp8, WeightFormat::nvfp4})
      for (const int sm_count : {8, 132})
        for (int tokens = 9; tokens <= kManyTokens; ++tokens) {
          const auto choice = choose_many_pair(shape[0], shape[1], shape[2], form, tokens, sm_count);
          const auto alone = choose_many(shape[1], shape[2], form, tokens, sm_count);
          if (alone.multiply.starts_with("dense_tall")) {
            EXPECT_EQ(choice.row, "");
            continue;
          }
          const int cells = (shape[2] + 511) / 512 * (tokens > 64 ? 2 : 1);
          EXPECT_EQ(std::count(names.begin(), names.end(), choice.row), 1) << choice.row;
          EXPECT_EQ(choice.first_blocks % cells, 0);
          EXPECT_EQ(choice.blocks % cells, 0);
          EXPECT_GE(choice.first_blocks, cells);
          EXPECT_GE(choice.blocks - choice.first_blocks, cells);
          EXPECT_LE(choice.blocks, std::max(sm_count, 2 * cells));
          EXPECT_EQ(choice.sum_blocks > 0, shape[2] > 512);
          EXPECT_EQ(std::count(names.begin(), names.end(), choice.sum), shape[2] > 512 ? 1 : 0) << choice.sum;
          EXPECT_EQ(choice.first_partial, partial_bytes(shape[0], shape[2], tokens));
          EXPECT_EQ(choice.workspace_bytes, choice.first_partial + partial_bytes(shape[1], shape[2], tokens));
        }
  // The router's 18 halves of 2 KB a record, the shared expert's 32 strips of 1,152 bytes: as even as 33 go.
  const auto router = choose_many_pair(288, 1024, 2048, WeightFormat::nvfp4, 16, 132);
  EXPECT_EQ(router.row, "dense_many_pair 16x512 bf16 nvfp4");
  EXPECT_EQ(router.first_blocks, 4 * 18);
  EXPECT_EQ(router.blocks, 4 * 33);
  EXPECT_EQ(choose_many_pair(64, 12288, 2048, WeightFormat::bf16, 16, 132).row, "");  // one matrix
}

TEST(ChooseMany, HasARowForEveryMatrixOfTheModels) {
  std::vector<std::string> names;
  moe::for_each_row(Rows<moe::Simulated>{}, [&]<class Row>() { names.push_back(Row::name()); });
  const int shapes[][2] = {{12352, 2048}, {2048, 4096},  {9216, 2048}, {1312, 2048},
                           {2048, 512},   {20480, 4096}, {4096, 8192}, {32, 64}};
  for (const auto& shape : shapes)
    for (const auto form : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
      for (int tokens = 9; tokens <= kManyTokens; ++tokens) {
        const auto choice = choose_many(shape[0], shape[1], form, tokens, 132);
        const int segments = (shape[1] + 511) / 512;
        EXPECT_EQ(std::count(names.begin(), names.end(), choice.multiply), 1) << choice.multiply;
        EXPECT_EQ(std::count(names.begin(), names.end(), choice.sum), segments > 1 ? 1 : 0) << choice.sum;
        EXPECT_EQ(std::count(names.begin(), names.end(), choice.sum_norm),
                  segments > 1 && shape[0] <= kNormColumnsMax ? 1 : 0);
        EXPECT_GE(choice.multiply_blocks, 1);
        EXPECT_LE(choice.multiply_blocks, 132);
        EXPECT_EQ(choice.multiply_blocks % ((tokens > 64 ? 2 : 1) * segments), 0);
        EXPECT_EQ(choice.sum_blocks > 0, segments > 1);
        EXPECT_EQ(choice.workspace_bytes, size(segments) * size((tokens + 7) / 8 * 8) * size(shape[0]) * 4);
      }
  const auto out_proj = choose_many(2048, 4096, WeightFormat::bf16, 64, 132);
  EXPECT_EQ(out_proj.multiply, "dense_many 32x64x512 bf16");
  EXPECT_EQ(out_proj.multiply_blocks, 128);
  EXPECT_EQ(out_proj.sum_blocks, 128);
  EXPECT_EQ(choose_many(12352, 2048, WeightFormat::bf16, 9, 132).multiply, "dense_many 16x16x512 bf16");
  EXPECT_EQ(choose_many(12352, 2048, WeightFormat::bf16, 80, 132).multiply, "dense_many 32x48x512 bf16");
  const auto head = choose_many(248320, 2048, WeightFormat::bf16, 100, 132);
  EXPECT_EQ(head.multiply, "dense_tall 32x64x512 bf16");
  EXPECT_EQ(head.multiply_blocks, 132);
  EXPECT_EQ(head.sum_blocks, 0);
  EXPECT_EQ(head.workspace_bytes, 0u);
  // Few SMs, or more segments than SMs: a block for each.
  EXPECT_EQ(choose_many(64, 8192, WeightFormat::fp8, 100, 8).multiply_blocks, 32);
}

}  // namespace
}  // namespace fourfold::dense
