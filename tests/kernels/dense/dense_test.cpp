#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "kernels/dense/choose.h"
#include "kernels/dense/choose_many.h"
#include "kernels/dense/reference.h"
#include "kernels/device/functions.h"
#include "kernels/launch/sim_row.h"
#include "kernels/moe_stream/moe_stream.h"
#include "tests/kernels/dense/dense_case.h"

namespace fourfold::dense {
namespace {

using test::DenseMatrix;
using test::size;
using Arch = plan::Sm120;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* memory = device.allocate_array<T>(values.size(), name);
  device.write_from_host(memory, values.data(), values.size() * sizeof(T));
  return memory;
}
template <class T>
std::vector<T> download(const sim::Device& device, const T* from, std::size_t count) {
  std::vector<T> values(count);
  device.read_to_host(values.data(), from, count * sizeof(T));
  return values;
}

// A predecessor in the chain of dependent launches wrote this: it may be read after the wait only.
void copy_as_predecessor(sim::Device& device, const void* from, void* to, std::size_t bytes) {
  sim::LaunchConfig config;
  config.threads = 32;
  config.pdl = true;
  config.name = "predecessor";
  device.launch(config, [&](sim::Lane& lane) {
    const device::SimCta cta(lane);
    cta.wait_predecessors();
    cta.release_successors();
    for (std::size_t i = size(cta.lane()); i < bytes / 4; i += 32)
      cta.store(static_cast<std::uint32_t*>(to) + i, cta.load(static_cast<const std::uint32_t*>(from) + i));
  });
}
template <class T>
T* written_by_predecessor(sim::Device& device, const std::vector<T>& values, const char* name) {
  const T* from = upload(device, values, "source");
  T* to = device.allocate_array<T>(values.size(), name);
  copy_as_predecessor(device, from, to, values.size() * sizeof(T));
  return to;
}

DenseParams params_of(const DenseMatrix& matrix, const unsigned char* records, int tokens) {
  DenseParams params{};
  params.weights = records;
  params.scale = params.scale_gate = params.scale_up = 1.0f;
  params.strips = matrix.strips();
  params.plain_strips = matrix.plain_strips();
  params.records = matrix.columns / record::kColumns;
  params.token_count = tokens;
  params.token_stride = matrix.columns;
  params.out_stride = matrix.plain;
  params.gate_up_stride = matrix.neurons;
  return params;
}

void expect_no_conflicts(const sim::LaunchStats& stats) {
  EXPECT_EQ(stats.uncounted_accesses, 0u);
  for (const auto& site : stats.traffic)
    EXPECT_EQ(site.wavefronts, site.ideal) << site.file << ":" << site.line << ", " << site.accesses;
}

// [tokens, rows] f32 of bf16 tokens.
template <class Row>
std::vector<float> run_given(const DenseMatrix& matrix, const std::vector<Bf16>& tokens, int blocks,
                             std::uint64_t seed) {
  sim::Device device;
  device.set_seed(seed);
  const int count = static_cast<int>(tokens.size()) / matrix.columns;
  DenseParams params = params_of(matrix, upload(device, matrix.records, "weights"), count);
  params.tokens = written_by_predecessor(device, tokens, "tokens");
  auto* out = device.allocate_array<float>(size(count) * size(matrix.plain), "out");
  params.out = out;
  expect_no_conflicts(kernels::run_on_sim<Row>(device, blocks, params));
  return download(device, out, size(count) * size(matrix.plain));
}

template <class Row>
void check_given(int rows, int columns, int tokens, int blocks, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << ": " << rows << " x " << columns << ", " << tokens
                                  << " tokens, " << blocks << " blocks, seed " << seed);
  Random random(seed);
  const auto matrix = test::random_dense<typename Row::Format>(random, rows, 0, columns);
  const auto x = verify::random_tokens(random, tokens, columns);
  const auto got = run_given<Row>(matrix, x, blocks, seed);
  for (int token = 0; token < tokens; ++token)
    for (int row = 0; row < rows; ++row) {
      const auto dot = test::dense_dot(matrix, row, x.data() + std::int64_t{token} * columns);
      const float value = got[size(std::int64_t{token} * rows + row)];
      ASSERT_EQ(bits_of(value), bits_of(dot.bits * Row::Format::half_decode_factor))
          << "token " << token << " row " << row;
      ASSERT_LE(std::abs(double{value} / double{Row::Format::half_decode_factor} - dot.value), dot.bound);
    }
}

using AllGiven = FewRowsOf<Arch, GivenRows>;

// Every row, K below, at and beyond a segment, with a ragged end; blocks with one unit, several and none.
TEST(DenseFew, GivesTheBitsOfTheDefinition) {
  std::uint64_t seed = 1;
  moe::for_each_row(AllGiven{}, [&]<class Row>() {
    int tokens = 1;
    for (const int columns : {64, 128, 512, 576, 2048}) {
      check_given<Row>(columns == 2048 ? 64 : 160, columns, tokens, columns == 512 ? 12 : 3, seed++);
      tokens = tokens % 8 + 1;
    }
    for (; tokens <= 8; ++tokens) check_given<Row>(96, 576, tokens, 1, seed++);
  });
}

// More segments than warps: a unit takes several waves.
TEST(DenseFew, TakesLongRowsInWaves) {
  check_given<FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>>(64, 4736, 3, 2, 100);
  check_given<FewRow<Arch, record::Bf16Format, GivenRows, 2, 4, 1>>(96, 4160, 8, 2, 101);
  check_given<FewRow<Arch, record::Nvfp4, GivenRows, 2, 8, 2>>(64, 8256, 2, 1, 102);
  check_given<FewRow<Arch, record::Fp8Format, GivenRows, 2, 4, 2>>(32, 4096, 1, 1, 103);
}

// A token's bits depend neither on its neighbours nor on the grid, the seed of the schedule, or the row.
TEST(DenseFew, SameBitsInAnotherBatchAndGrid) {
  Random random(7);
  using Half = FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>;
  using Whole = FewRow<Arch, record::Bf16Format, GivenRows, 2, 4, 1>;
  const auto matrix = test::random_dense<record::Bf16Format>(random, 128, 0, 1088);
  const auto x = verify::random_tokens(random, 8, 1088);
  const auto all = run_given<Half>(matrix, x, 3, 1);
  EXPECT_EQ(run_given<Half>(matrix, x, 5, 2), all);
  EXPECT_EQ(run_given<Whole>(matrix, x, 2, 3), all);
  for (int token = 0; token < 8; token += 3) {
    const std::vector<Bf16> alone(x.begin() + token * 1088, x.begin() + (token + 1) * 1088);
    const std::vector<float> part(all.begin() + token * 128, all.begin() + (token + 1) * 128);
    EXPECT_EQ(run_given<Half>(matrix, alone, 4, 4), part) << "token " << token;
  }
}

// The streaming kernel of the experts, given the same records as one expert.
template <class Dense>
void check_against_stream() {
  using Format = typename Dense::Format;
  using Stream = moe_stream::StreamRow<Arch, moe::W4a16Mma, Format, 8, 1, 4, 1, 4>;
  for (const int columns : {576, 2048}) {
    Random random(size(columns));
    const auto matrix = test::random_dense<Format>(random, 96, 0, columns);
    const auto x = verify::random_tokens(random, 5, columns);
    sim::Device device;
    moe::GemmParams params{};
    params.weights = upload(device, matrix.records, "weights");
    params.tokens = reinterpret_cast<const unsigned char*>(upload(device, x, "tokens"));
    params.tiles = upload(device, std::vector<moe::TokenTile>{{0, 0, 5, 0}}, "tiles");
    params.tile_count = upload(device, std::vector<std::int32_t>{1}, "count");
    auto* out = device.allocate_array<float>(5 * 96, "out");
    params.out = out;
    params.op = moe::Op::down;
    params.strips = 3;
    params.records = columns / record::kColumns;
    params.out_columns = 96;
    sim::LaunchConfig config;
    config.blocks = 2;
    config.threads = Stream::threads;
    config.shared_bytes = sizeof(typename Stream::Storage);
    config.shared_limit_bytes = Arch::smem_bytes_per_block;
    device.launch(config,
                  [&](sim::Lane& lane) { moe_stream::stream_gemm<Stream>(device::SimCta(lane), params); });
    const auto stream = download(device, out, 5 * 96);
    const auto dense = run_given<Dense>(matrix, x, 2, 3);
    for (std::size_t i = 0; i < stream.size(); ++i) ASSERT_EQ(bits_of(dense[i]), bits_of(stream[i])) << i;
  }
}
TEST(DenseFew, SameBitsAsTheStreamingKernel) {
  check_against_stream<FewRow<Arch, record::Nvfp4, GivenRows, 2, 8, 2>>();
  check_against_stream<FewRow<Arch, record::Bf16Format, GivenRows, 1, 8, 1>>();
  check_against_stream<FewRow<Arch, record::Fp8Format, GivenRows, 2, 8, 1>>();
}

// ---- epilogues ----

struct Scales {
  float plain = 0.75f, gate = 1.5f, up = 0.3f;
  std::vector<float> rows;
};

// Plain rows by `op` beside gate and up rows, with every factor.
template <class Row>
void check_epilogue(PlainOp op, int plain, int neurons, int tokens, bool row_scale, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << " op " << static_cast<int>(op) << " tokens " << tokens);
  using Cta = device::SimCta;
  Random random(seed);
  const int columns = 640;
  const auto matrix = test::random_dense<typename Row::Format>(random, plain, neurons, columns);
  const auto x = verify::random_tokens(random, tokens, columns);
  Scales scales;
  for (int row = 0; row < matrix.rows(); ++row)
    scales.rows.push_back(static_cast<float>(random.uniform(0.5, 2.0)));
  std::vector<float> before;
  for (int i = 0; i < tokens * plain; ++i) before.push_back(static_cast<float>(random.normal() * 100.0));

  sim::Device device;
  device.set_seed(seed);
  DenseParams params = params_of(matrix, upload(device, matrix.records, "weights"), tokens);
  params.scale = scales.plain;
  params.scale_gate = scales.gate;
  params.scale_up = scales.up;
  params.op = op;
  if (row_scale) params.row_scale = upload(device, scales.rows, "row scale");
  auto* out = op == PlainOp::add_f32 ? written_by_predecessor(device, before, "out")
                                     : device.allocate_array<float>(before.size(), "out");
  auto* pairs = device.allocate_array<std::uint16_t>(size(tokens) * size(neurons) + 1, "gate_up");
  params.tokens = written_by_predecessor(device, x, "tokens");
  params.out = out;
  params.gate_up_out = pairs;
  expect_no_conflicts(kernels::run_on_sim<Row>(device, 3, params));

  const auto scaled = [&](int row, int token, float scale) {
    const float dot = test::dense_dot(matrix, row, x.data() + std::int64_t{token} * columns).bits;
    return dot * (scale * Row::Format::half_decode_factor) * (row_scale ? scales.rows[size(row)] : 1.0f);
  };
  for (int token = 0; token < tokens; ++token)
    for (int row = 0; row < plain; ++row) {
      const float value = scaled(row, token, scales.plain);
      const std::size_t at = size(std::int64_t{token} * plain + row);
      if (op == PlainOp::store_bf16) {
        const auto got = download(device, reinterpret_cast<std::uint16_t*>(out) + at, 1)[0];
        ASSERT_EQ(got, to_bf16(value).bits) << "token " << token << " row " << row;
      } else {
        const float expected = op == PlainOp::add_f32 ? before[at] + value : value;
        ASSERT_EQ(bits_of(download(device, out + at, 1)[0]), bits_of(expected)) << token << " " << row;
      }
    }
  for (int token = 0; token < tokens; ++token)
    for (int neuron = 0; neuron < neurons; ++neuron) {
      const float gate = scaled(plain + neuron, token, scales.gate);
      const float up = scaled(plain + neurons + neuron, token, scales.up);
      const auto got = download(device, pairs + std::int64_t{token} * neurons + neuron, 1)[0];
      ASSERT_EQ(got, to_bf16(device::swiglu<Cta>(gate, up)).bits)
          << "token " << token << " neuron " << neuron;
    }
}

TEST(DenseFew, FinishesRowsAsAsked) {
  std::uint64_t seed = 20;
  moe::for_each_row(AllGiven{}, [&]<class Row>() {
    check_epilogue<Row>(PlainOp::store_f32, 96, 64, 3, true, seed++);
    check_epilogue<Row>(PlainOp::add_f32, 64, 0, 8, false, seed++);
    check_epilogue<Row>(PlainOp::add_f32, 32, 32, 1, true, seed++);
    check_epilogue<Row>(PlainOp::store_bf16, 64, 32, 2, false, seed++);
    check_epilogue<Row>(PlainOp::store_f32, 0, 32, 5, true, seed++);
  });
}

// ---- norm ----

struct NormCase {
  int rows, columns;
  std::vector<float> x, weight;
  NormCase(Random& random, int rows_of, int columns_of) : rows(rows_of), columns(columns_of) {
    for (int row = 0; row < rows; ++row) {
      const double scale = random.below(4) == 0 ? 1e-3 : 3.0;
      for (int c = 0; c < columns; ++c) x.push_back(static_cast<float>(random.normal() * scale));
    }
    for (int c = 0; c < columns; ++c) weight.push_back(static_cast<float>(1.0 + 0.2 * random.normal()));
  }
};
constexpr float kEpsilon = 1e-6f;

std::vector<std::uint16_t> run_norm(sim::Device& device, const NormCase& norm, float* x, NormAdd add,
                                    const void* y) {
  auto* out = device.allocate_array<std::uint16_t>(norm.x.size(), "normed");
  const NormParams params{x, y, upload(device, norm.weight, "weight"), out, kEpsilon, add, norm.columns};
  expect_no_conflicts(kernels::run_on_sim<NormRow<Arch>>(device, norm.rows, params));
  return download(device, out, norm.x.size());
}

// Bit for bit, and near double precision: bf16 has eight significant bits, so its rounding is at most 2^-8 of
// the value; the rest of the bound is in reference.h.
void expect_normed(const NormCase& norm, const std::vector<float>& x, const std::vector<std::uint16_t>& got) {
  for (int row = 0; row < norm.rows; ++row) {
    const std::size_t first = size(std::int64_t{row} * norm.columns);
    const auto want =
        normed_row<device::SimCta>(x.data() + first, norm.weight.data(), norm.columns, kEpsilon);
    for (std::size_t c = 0; c < want.size(); ++c) {
      ASSERT_EQ(got[first + c], to_bf16(want[c].bits).bits) << "row " << row << " column " << c;
      ASSERT_LE(std::abs(double{to_float(Bf16{got[first + c]})} - want[c].value),
                std::abs(want[c].value) * 0x1p-8 + 2 * want[c].error)
          << "row " << row << " column " << c;
    }
  }
}

TEST(NormRows, NormsWithinItsBound) {
  std::uint64_t seed = 1;
  for (const int columns : {64, 256, 320, 2048, 4096, 8192}) {
    SCOPED_TRACE(columns);
    Random random(seed);
    const NormCase norm(random, 3, columns);
    sim::Device device;
    device.set_seed(seed++);
    auto* x = written_by_predecessor(device, norm.x, "x");
    expect_normed(norm, norm.x, run_norm(device, norm, x, NormAdd::none, nullptr));
  }
}

TEST(NormRows, AddsFirstAndWritesBack) {
  for (const bool half : {false, true}) {
    Random random(half ? 5 : 6);
    const NormCase norm(random, 2, 576);
    std::vector<float> y, sum;
    std::vector<Bf16> y_half;
    for (const float value : norm.x) {
      y_half.push_back(to_bf16(static_cast<float>(random.normal())));
      y.push_back(half ? to_float(y_half.back()) : static_cast<float>(random.normal()));
      sum.push_back(value + y.back());
    }
    sim::Device device;
    auto* x = written_by_predecessor(device, norm.x, "x");
    const void* added = half ? static_cast<const void*>(written_by_predecessor(device, y_half, "y"))
                             : written_by_predecessor(device, y, "y");
    const auto got = run_norm(device, norm, x, half ? NormAdd::bf16 : NormAdd::f32, added);
    expect_normed(norm, sum, got);
    const auto written = download(device, x, sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(bits_of(written[i]), bits_of(sum[i])) << i;
  }
}

// Normed inside the matrix kernel or before it: the same bits, for one pass of rows and for several.
template <class Row, class Given>
void check_fused_norm(int rows, int columns, int tokens, int blocks, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << Row::name() << " K " << columns << ", " << tokens << " tokens");
  Random random(seed);
  const NormCase norm(random, tokens, columns);
  const auto matrix = test::random_dense<typename Row::Format>(random, rows, 0, columns);
  sim::Device device;
  device.set_seed(seed);
  auto* x = written_by_predecessor(device, norm.x, "x");
  DenseParams params = params_of(matrix, upload(device, matrix.records, "weights"), tokens);
  params.tokens = x;
  params.norm_weight = upload(device, norm.weight, "norm weight");
  params.epsilon = kEpsilon;
  auto* out = device.allocate_array<float>(size(tokens) * size(rows), "out");
  params.out = out;
  expect_no_conflicts(kernels::run_on_sim<Row>(device, blocks, params));
  const auto fused = download(device, out, size(tokens) * size(rows));
  const auto normed = run_norm(device, norm, x, NormAdd::none, nullptr);
  std::vector<Bf16> given;
  for (const std::uint16_t bits : normed) given.push_back({bits});
  const auto apart = run_given<Given>(matrix, given, blocks, seed);
  for (std::size_t i = 0; i < fused.size(); ++i) ASSERT_EQ(bits_of(fused[i]), bits_of(apart[i])) << i;
}

template <class Format, int Tiles, int Warps, int Records>
void check_fused_norms(std::uint64_t seed) {
  using Normed = FewRow<Arch, Format, NormedRows, Tiles, Warps, Records>;
  using Given = FewRow<Arch, Format, GivenRows, Tiles, Warps, Records>;
  int tokens = 1;
  for (const int columns : {64, 128, 512, 576, 2048})
    check_fused_norm<Normed, Given>(96, columns, tokens++, 2, seed++);
  check_fused_norm<Normed, Given>(32, 2048, 8, 3, seed++);  // several passes; a block without a unit
  check_fused_norm<Normed, Given>(32, 320, 7, 1, seed++);
}

TEST(DenseFew, NormsAsNormRowsDoes) {
  check_fused_norms<record::Bf16Format, 1, 8, 1>(200);
  check_fused_norms<record::Bf16Format, 2, 4, 1>(210);
  check_fused_norms<record::Fp8Format, 2, 8, 1>(220);
  check_fused_norms<record::Fp8Format, 2, 4, 2>(230);
  check_fused_norms<record::Nvfp4, 2, 8, 2>(240);
}

// ---- choice ----

TEST(ChooseDense, HasARowForEveryMatrixOfTheModels) {
  std::vector<std::string> names;
  moe::for_each_row(Rows<moe::Simulated>{}, [&]<class Row>() {
    plan::check_row(Row::facts());
    names.push_back(Row::name());
  });
  std::vector<std::string> once = names;
  std::sort(once.begin(), once.end());
  EXPECT_EQ(std::unique(once.begin(), once.end()), once.end()) << "row names are unique";
  const int shapes[][2] = {{12352, 2048},  {2048, 4096}, {9216, 2048},  {1312, 2048}, {2048, 512},
                           {248320, 2048}, {3072, 3072}, {20480, 4096}, {4096, 8192}, {32, 64}};
  for (const auto& shape : shapes)
    for (const auto form : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
      for (const auto source : {TokenSource::rows, TokenSource::norm})
        for (int tokens = 1; tokens <= 8; ++tokens) {
          const auto choice = choose_dense(shape[0], shape[1], form, source, tokens, 132);
          EXPECT_EQ(std::count(names.begin(), names.end(), choice.row), 1) << choice.row;
          EXPECT_GE(choice.blocks, 1);
          EXPECT_LE(choice.blocks, 132);
          EXPECT_EQ(choice.row.find(" norm ") != std::string::npos,
                    source == TokenSource::norm && !choice.separate_norm);
        }
  const auto out_proj = choose_dense(2048, 4096, WeightFormat::bf16, TokenSource::rows, 1, 132);
  EXPECT_EQ(out_proj.row, "dense_few 16x8x512 rows bf16 w8");
  EXPECT_EQ(out_proj.blocks, 128);
  EXPECT_FALSE(choose_dense(12352, 2048, WeightFormat::bf16, TokenSource::norm, 8, 132).separate_norm);
  EXPECT_TRUE(choose_dense(20480, 4096, WeightFormat::bf16, TokenSource::norm, 8, 132).separate_norm);
}

// Two tokens and more of a matrix whose strips would leave half of the SMs without work: halves of strips.
TEST(ChooseDense, SmallMatricesOfFewBytesTakeHalvesOfStrips) {
  const auto row = [](int rows, int columns, WeightFormat format, TokenSource source, int tokens) {
    return choose_dense(rows, columns, format, source, tokens, 132).row;
  };
  using enum WeightFormat;
  EXPECT_EQ(row(2048, 4096, nvfp4, TokenSource::rows, 2), "dense_near 16x8x512 rows nvfp4 w8");
  EXPECT_EQ(row(2048, 512, fp8, TokenSource::rows, 8), "dense_near 16x8x512 rows fp8 w8");
  EXPECT_EQ(row(2048, 4096, nvfp4, TokenSource::rows, 1), "dense_few 32x8x512 rows nvfp4 w8");
  EXPECT_EQ(row(2048, 4160, nvfp4, TokenSource::rows, 2), "dense_few 32x8x512 rows nvfp4 w8");
  EXPECT_EQ(row(4096, 4096, nvfp4, TokenSource::rows, 2), "dense_few 32x8x512 rows nvfp4 w8");
  EXPECT_EQ(row(2048, 2048, nvfp4, TokenSource::norm, 2), "dense_few 32x8x512 norm nvfp4 w8");
  const auto router = [](int tokens) { return choose_pair(288, 1024, 2048, nvfp4, tokens, 132); };
  EXPECT_EQ(router(4).row, "dense_pair bf16 nvfp4 w8 near");
  EXPECT_EQ(router(4).first_blocks, 18);
  EXPECT_EQ(router(4).blocks, 82);
  EXPECT_EQ(router(1).row, "dense_pair bf16 nvfp4 w8");
  EXPECT_EQ(choose_pair(64, 12288, 2048, nvfp4, 4, 132).row, "dense_pair bf16 nvfp4 w8");
}

// Sixteen warps decode a head in FP4, unless the tokens they would norm leave too little of the ring.
TEST(ChooseDense, TheHeadInFp4) {
  const auto head = [](TokenSource source, int tokens) {
    return choose_dense(248320, 2048, WeightFormat::nvfp4, source, tokens, 132);
  };
  EXPECT_EQ(head(TokenSource::norm, 1).row, "dense_few 32x8x512 norm nvfp4 w16");
  EXPECT_EQ(head(TokenSource::rows, 8).row, "dense_few 32x8x512 rows nvfp4 w16");
  EXPECT_EQ(head(TokenSource::norm, 4).row, "dense_few 32x8x512 norm nvfp4 w8");
}

// What has no rows is refused by its name, not taken for another format.
TEST(ChooseDense, RefusesOtherFormats) {
  for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::f32}) {
    const auto refuses = [&](const auto& choose) {
      try {
        choose();
        ADD_FAILURE() << format_name(format) << " has a row";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::unsupported_op);
        EXPECT_NE(std::string_view(error.what()).find(format_name(format)), std::string_view::npos);
      }
    };
    refuses([&] { choose_dense(2048, 4096, format, TokenSource::rows, 1, 132); });
    refuses([&] { choose_pair(64, 2048, 2048, format, 1, 132); });
    refuses([&] { choose_many(2048, 4096, format, 64, 132); });
  }
}

}  // namespace
}  // namespace fourfold::dense
