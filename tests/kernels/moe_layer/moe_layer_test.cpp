// The layer as its callers meet it: a row's result does not depend on its neighbours, and bad input is
// refused before anything is written. That the results are right is what the proofs (kernels/verify) show.
#include "kernels/moe_layer/moe_layer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/verify/layer_case.h"
#include "tests/kernels/small_layer.h"

namespace fourfold::test {
namespace {

using moe_layer::Activations;
using moe_layer::Choice;
using moe_layer::LayerCall;
using moe_layer::LayerWeights;
using moe_layer::Prepared;
using moe_layer::Request;
using moe_layer::Role;
using moe_layer::Shape;

using Row = std::vector<std::uint16_t>;

// ---- a row has the same bits in every batch ----

class Invariance {
 public:
  Invariance(const plan::ArchFacts& arch, const SmallLayerOptions& options, Role role)
      : machine_(kernels::make_sim_machine(device_, {.arch = &arch})),
        layer_(*machine_, options),
        role_(role) {
    // Each row alone, with the rows choose() gives a batch of one.
    for (int row = 0; row < options.pool; ++row) alone_.push_back(rows_of({row}, nullptr)[0]);
  }

  // Random batches, rows repeated at random positions, with choose()'s rows or with the given one.
  void expect_same(int batches, int largest, const Choice* choice, std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < batches; ++i) {
      std::vector<int> rows;
      const auto count = 1 + random.below(static_cast<std::uint64_t>(largest));
      for (std::uint64_t r = 0; r < count; ++r) rows.push_back(static_cast<int>(random.below(alone_.size())));
      device_.set_seed(random.below(3));
      const std::vector<Row> got = rows_of(rows, choice);
      for (std::size_t r = 0; r < rows.size(); ++r)
        ASSERT_EQ(got[r], alone_[static_cast<std::size_t>(rows[r])])
            << "row " << rows[r] << " at " << r << " of " << rows.size()
            << (choice ? " with " + choice->gate_up_row : "");
    }
  }
  const std::vector<plan::RowFacts>& gemm_rows() const { return machine_->rows(kernels::RowKind::gemm); }

 private:
  std::vector<Row> rows_of(const std::vector<int>& rows, const Choice* choice) {
    const Request request = layer_.request(role_, static_cast<int>(rows.size()));
    const Prepared prepared = choice ? moe_layer::prepare_with(*machine_, request, *choice)
                                     : moe_layer::prepare(*machine_, request);
    Batch batch(layer_, prepared, rows);
    const Row all = batch.run();
    std::vector<Row> split;
    const std::size_t columns = all.size() / rows.size();
    for (std::size_t r = 0; r < rows.size(); ++r)
      split.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * columns),
                         all.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
    return split;
  }

  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_;
  SmallLayer layer_;
  Role role_;
  std::vector<Row> alone_;
};

SmallLayerOptions options_of(Shape shape, Activations activations, WeightFormat format) {
  SmallLayerOptions options;
  options.shape = shape;
  options.activations = activations;
  options.format = format;
  return options;
}

// Every N of the streaming rows, and the few-token path for up to four.
void check_decode(const SmallLayerOptions& options) {
  Invariance layer(plan::kSm120, options, Role::decode);
  layer.expect_same(4, 4, nullptr, 1);
  if (options.activations == Activations::w4a16) {
    Request request{options.shape,          options.activations, options.format, Role::decode, 4,
                    options.packed_for_w4a4};
    request.clamped = options.clamped;
    const Choice few = moe_layer::few_choice(request);
    ASSERT_TRUE(few.ok()) << few.refusal;
    layer.expect_same(4, 4, &few, 1);
  }
  layer.expect_same(4, 40, nullptr, 2);
  const std::string path = options.activations == Activations::w4a4 ? "w4a4"
                           : options.packed_for_w4a4                ? "w4a16-fp4-mma"
                                                                    : "w4a16-mma";
  const std::string format_name = options.format == WeightFormat::mxfp4 ? "mxfp4" : "nvfp4";
  int found = 0;
  for (const plan::RowFacts& row : layer.gemm_rows()) {
    const bool fits = row.kernel == "moe_stream" && moe::loop_takes(options.shape.hidden, row) &&
                      moe::loop_takes(options.shape.intermediate, row);
    if (row.role != "decode" || row.path != path || row.format != format_name || !fits ||
        row.clamps != options.clamped)
      continue;
    Choice choice;
    choice.gate_up_row = choice.down_row = row.row;
    choice.tile_tokens = row.n;
    layer.expect_same(1, 24, &choice, 3);
    ++found;
  }
  EXPECT_GE(found, 4);
}

TEST(LayerInvariance, DecodeAcrossPathsAndWidths) {
  // One segment; two and a bit, where warps share strips; units of 512.
  check_decode(options_of({128, 64, 4, 2}, Activations::w4a16, WeightFormat::nvfp4));
  check_decode(options_of({1088, 192, 3, 2}, Activations::w4a16, WeightFormat::nvfp4));
  check_decode(options_of({512, 512, 3, 3}, Activations::w4a16, WeightFormat::nvfp4));
}
TEST(LayerInvariance, DecodeMxfp4) {
  check_decode(options_of({576, 256, 5, 2}, Activations::w4a16, WeightFormat::mxfp4));
}
TEST(LayerInvariance, DecodeW4a4) {
  check_decode(options_of({576, 128, 4, 2}, Activations::w4a4, WeightFormat::nvfp4));
}

// One copy of the weights for W4A4 prompts and W4A16 generated tokens: the latter lose nothing by it.
TEST(LayerInvariance, DecodeFromWeightsPackedForW4a4HasTheSameBits) {
  SmallLayerOptions options = options_of({1088, 192, 3, 2}, Activations::w4a16, WeightFormat::nvfp4);
  std::vector<Row> results;
  for (const bool packed : {false, true}) {
    options.packed_for_w4a4 = packed;
    if (packed) check_decode(options);  // without is above
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm120});
    SmallLayer layer(*machine, options);
    for (const std::vector<int>& rows : {std::vector<int>{0}, {1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 0, 1}}) {
      const Request request = layer.request(Role::decode, static_cast<int>(rows.size()));
      results.push_back(Batch(layer, moe_layer::prepare(*machine, request), rows).run());
    }
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]);
}

void check_prefill(const plan::ArchFacts& arch, const SmallLayerOptions& options, const std::string& path) {
  Invariance layer(arch, options, Role::prefill);
  layer.expect_same(2, 70, nullptr, 4);
  const std::string format_name = options.format == WeightFormat::mxfp4 ? "mxfp4" : "nvfp4";
  int found = 0;
  for (const plan::RowFacts& row : layer.gemm_rows()) {
    if (row.role != "prefill" || row.path != path || row.format != format_name ||
        row.clamps != options.clamped)
      continue;
    Choice choice;
    choice.gate_up_row = choice.down_row = row.row;
    choice.tile_tokens = row.n;
    layer.expect_same(1, 24, &choice, 5);
    ++found;
  }
  EXPECT_GE(found, options.clamped ? 2 : 8);
}

// Biases and the clamped SwiGLU, which have rows of their own.
TEST(LayerInvariance, Clamped) {
  SmallLayerOptions options = options_of({832, 256, 3, 2}, Activations::w4a16, WeightFormat::mxfp4);
  options.clamped = true;
  check_decode(options);  // loops of 64 columns, and of 512 whose last round is shorter
  options.shape = {192, 128, 3, 2};
  check_prefill(plan::kSm120, options, "w4a16-mma");
  check_prefill(plan::kSm90, options, "w4a16-wgmma");
}

TEST(LayerInvariance, PrefillAcrossMmaTiles) {
  check_prefill(plan::kSm120, options_of({192, 128, 3, 2}, Activations::w4a16, WeightFormat::nvfp4),
                "w4a16-mma");
}
TEST(LayerInvariance, PrefillAcrossFp4Tiles) {
  check_prefill(plan::kSm120, options_of({192, 128, 3, 2}, Activations::w4a4, WeightFormat::nvfp4), "w4a4");
}
TEST(LayerInvariance, PrefillAcrossWgmmaTiles) {
  check_prefill(plan::kSm90, options_of({192, 128, 3, 2}, Activations::w4a16, WeightFormat::nvfp4),
                "w4a16-wgmma");
}
TEST(LayerInvariance, PrefillMxfp4) {
  check_prefill(plan::kSm120, options_of({192, 128, 3, 2}, Activations::w4a16, WeightFormat::mxfp4),
                "w4a16-mma");
}

TEST(LayerInvariance, MmaAndWgmmaGiveThePrefillRowTheSameBits) {
  // Same operands, same order, same tensor-core arithmetic: the chip's path is a matter of speed.
  const SmallLayerOptions options = options_of({256, 128, 3, 2}, Activations::w4a16, WeightFormat::nvfp4);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  SmallLayer layer(*machine, options);
  std::vector<Row> results;
  for (const char* row : {"moe_gemm 128x64x128 w4a16-mma nvfp4", "moe_gemm 128x64x128 w4a16-wgmma nvfp4"}) {
    Choice choice;
    choice.gate_up_row = choice.down_row = row;
    choice.tile_tokens = 64;
    Batch batch(layer, moe_layer::prepare_with(*machine, layer.request(Role::prefill, 5), choice),
                {0, 1, 2, 3, 4});
    results.push_back(batch.run());
  }
  EXPECT_EQ(results[0], results[1]);
}

// ---- right at all ----

TEST(Layer, MatchesTheReferenceWithTiesAndNan) {
  using verify::LogitKind;
  for (const LogitKind kind :
       {LogitKind::random, LogitKind::ties, LogitKind::one_expert_set, LogitKind::with_nan})
    for (const int tokens : {0, 1, 4, 9}) {
      sim::Device device;
      const auto machine = kernels::make_sim_machine(device);
      verify::LayerCase test;
      test.request = {{128, 64, 6, 3}, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens};
      test.logits = kind;
      const verify::Result result = verify::run_layer_case(*machine, test, true);
      EXPECT_TRUE(result.passed()) << result.shape << ": " << result.failure << " ratio "
                                   << result.worst_ratio << ", bits " << result.bit_mismatches;
    }
}

// Large proofs share weights and compare some of the rows.
TEST(Layer, SharedWeightsAndASampleOfTheRows) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  verify::LayerCase test;
  test.weights = verify::share_weights(7);
  test.checked_tokens = 3;
  for (const int tokens : {2, 9}) {
    test.request = {{128, 64, 6, 3}, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens};
    test.seed = static_cast<std::uint64_t>(tokens);
    const verify::Result result = verify::run_layer_case(*machine, test, true);
    EXPECT_TRUE(result.passed()) << result.failure;
    EXPECT_EQ(result.compared, 128 * std::min(tokens, 3));
  }
}

// ---- bad input ----

// A layer whose output and workspace hold a pattern; a refused call must leave it.
class BadInput : public testing::Test {
 protected:
  static constexpr int kCount = 6;
  static constexpr std::size_t kPattern = 0x5A;

  void prepare(Activations activations, Role role) {
    layer_ = std::make_unique<SmallLayer>(*machine_,
                                          options_of({128, 64, 4, 2}, activations, WeightFormat::nvfp4));
    prepared_ = moe_layer::prepare(*machine_, layer_->request(role, kCount));
    batch_ = std::make_unique<Batch>(*layer_, prepared_, std::vector<int>{0, 1, 2, 3, 4, 5});
    out_ = batch_->call().out;
    workspace_ = batch_->call().workspace;
    fill(out_, batch_->values() * 2);
    fill(workspace_, prepared_.layout.total);
    call_ = batch_->call();
    weights_ = layer_->weights();
  }
  void fill(void* start, std::size_t bytes) {
    machine_->memory().write(start, std::vector<std::uint8_t>(bytes, kPattern).data(), bytes);
  }
  bool untouched(const void* start, std::size_t bytes) {
    std::vector<std::uint8_t> got(bytes);
    machine_->memory().read(got.data(), start, bytes);
    return got == std::vector<std::uint8_t>(bytes, kPattern);
  }
  std::string refusal() {
    std::string text;
    try {
      moe_layer::run(*machine_, prepared_, weights_, call_);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      text = error.what();
    }
    EXPECT_TRUE(untouched(out_, batch_->values() * 2));
    EXPECT_TRUE(untouched(workspace_, prepared_.layout.total));
    call_ = batch_->call();
    weights_ = layer_->weights();
    return text;
  }

  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_);
  std::unique_ptr<SmallLayer> layer_;
  std::unique_ptr<Batch> batch_;
  Prepared prepared_;
  LayerCall call_;
  LayerWeights weights_;
  void* out_ = nullptr;
  void* workspace_ = nullptr;
};

TEST_F(BadInput, NullPointersAreNamed) {
  prepare(Activations::w4a16, Role::decode);
  const auto without = [&](auto& pointer) {
    pointer = nullptr;
    return refusal();
  };
  EXPECT_EQ(without(weights_.gate_up), "the packed gate/up weights is a null pointer");
  EXPECT_EQ(without(weights_.down), "the packed down weights is a null pointer");
  EXPECT_EQ(without(call_.logits), "the router logits is a null pointer");
  EXPECT_EQ(without(call_.tokens), "the tokens is a null pointer");
  EXPECT_EQ(without(call_.out), "the output is a null pointer");
  EXPECT_EQ(without(call_.workspace), "the workspace is a null pointer");
}

TEST_F(BadInput, InputScalesAreNeededForW4a4Only) {
  prepare(Activations::w4a4, Role::decode);
  const auto without = [&](auto& pointer) {
    pointer = nullptr;
    return refusal();
  };
  EXPECT_NE(without(weights_.gate_up_input_scale).find("gate/up input scales is a null pointer"),
            std::string::npos);
  EXPECT_NE(without(weights_.gate_up_input_inverse).find("reciprocal gate/up input scales"),
            std::string::npos);
  EXPECT_NE(without(weights_.down_input_scale).find("down input scales is a null pointer"),
            std::string::npos);
  EXPECT_NE(without(weights_.down_input_inverse).find("reciprocal down input scales"), std::string::npos);

  prepare(Activations::w4a16, Role::decode);
  weights_.gate_up_input_scale = weights_.gate_up_input_inverse = nullptr;
  weights_.down_input_scale = weights_.down_input_inverse = nullptr;
  EXPECT_NO_THROW(moe_layer::run(*machine_, prepared_, weights_, call_));
}

// A layer that was not prepared for them would leave them out.
TEST_F(BadInput, BiasesAreForLayersPreparedForThem) {
  prepare(Activations::w4a16, Role::decode);
  weights_.gate_up_bias = weights_.gate_scale;
  EXPECT_NE(refusal().find("prepared for them (Request::clamped)"), std::string::npos);
  weights_.down_bias = weights_.gate_scale;
  EXPECT_NE(refusal().find("prepared for them (Request::clamped)"), std::string::npos);
  prepared_.request.clamped = true;
  EXPECT_NE(refusal().find("the limit of the clamped SwiGLU must be above 0"), std::string::npos);
}

TEST_F(BadInput, GlobalScalesMayBeLeftOut) {
  prepare(Activations::w4a16, Role::decode);
  weights_.gate_scale = weights_.up_scale = weights_.down_scale = nullptr;
  EXPECT_NO_THROW(moe_layer::run(*machine_, prepared_, weights_, call_));
}

TEST_F(BadInput, AWorkspaceTooSmallIsRefusedWithBothNumbers) {
  for (const Role role : {Role::decode, Role::prefill}) {
    prepare(Activations::w4a16, role);
    for (const std::size_t bytes : {std::size_t{0}, prepared_.layout.total - 1}) {
      call_.workspace_bytes = bytes;
      const std::string text = refusal();
      EXPECT_NE(text.find(with_commas(static_cast<long long>(bytes))), std::string::npos) << text;
      EXPECT_NE(text.find(with_commas(static_cast<long long>(prepared_.layout.total))), std::string::npos)
          << text;
      EXPECT_NE(text.find(format("{} tokens", kCount)), std::string::npos) << text;
    }
  }
}

TEST_F(BadInput, AMisalignedWorkspaceIsRefused) {
  prepare(Activations::w4a16, Role::prefill);
  for (const int offset : {1, 16, 128}) {
    call_.workspace = static_cast<unsigned char*>(workspace_) + offset;
    EXPECT_NE(refusal().find("256"), std::string::npos);
  }
}

TEST_F(BadInput, ShapesAreRefusedWhenPreparing) {
  const auto text_of = [&](Shape shape, int tokens) {
    try {
      moe_layer::prepare(*machine_, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      return std::string(error.what());
    }
    ADD_FAILURE() << "no error";
    return std::string();
  };
  EXPECT_NE(text_of({130, 64, 4, 2}, 1).find("130"), std::string::npos);
  EXPECT_NE(text_of({128, 63, 4, 2}, 1).find("63"), std::string::npos);
  EXPECT_NE(text_of({128, 64, 4, 5}, 1).find("top-k 5 exceeds the 4 experts"), std::string::npos);
  EXPECT_NE(text_of({128, 64, 4, 2}, -1).find("-1 tokens"), std::string::npos);
}

TEST_F(BadInput, ARowTheMachineDoesNotHaveIsNamed) {
  Choice choice;
  choice.gate_up_row = choice.down_row = "moe_gemm 512x512x64 w4a4 nvfp4";
  choice.tile_tokens = 512;
  try {
    moe_layer::prepare_with(*machine_, {{128, 64, 4, 2}}, choice);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported_op);
    EXPECT_NE(std::string(error.what()).find(choice.gate_up_row), std::string::npos) << error.what();
  }
}

TEST_F(BadInput, ARefusalReachesTheCaller) {
  try {
    moe_layer::prepare(*machine_, {{128, 64, 4, 2}, Activations::w4a4, WeightFormat::mxfp4, Role::decode, 1});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported_op);
    EXPECT_NE(std::string(error.what()).find("MXFP4"), std::string::npos);
  }
}

TEST_F(BadInput, ZeroTokensNeedNothingAndWriteNothing) {
  for (const Role role : {Role::decode, Role::prefill}) {
    prepare(Activations::w4a16, role);
    const Prepared none = moe_layer::prepare(*machine_, layer_->request(role, 0));
    EXPECT_NO_THROW(moe_layer::run(*machine_, none, weights_, call_));
    EXPECT_NO_THROW(moe_layer::run(*machine_, none, LayerWeights{}, LayerCall{}));
    EXPECT_TRUE(untouched(out_, batch_->values() * 2));
    EXPECT_TRUE(untouched(workspace_, prepared_.layout.total));
  }
}

TEST_F(BadInput, NothingBeyondTheWorkspaceIsTouched) {
  // The layout says how much; an allocation of exactly that, and the simulator watches its ends.
  for (const Role role : {Role::decode, Role::prefill})
    for (const Activations activations : {Activations::w4a16, Activations::w4a4}) {
      prepare(activations, role);
      EXPECT_NO_THROW(batch_->run());
    }
}

}  // namespace
}  // namespace fourfold::test
