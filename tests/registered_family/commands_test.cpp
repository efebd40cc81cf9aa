// Commands read the program, not the name: a family that nobody released is made, inspected, planned,
// quantised, compared, benched and diagnosed like any other. Its matrices have names of its own, so whoever
// goes by patterns of names leaves it in 16 bits, and fails here.
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/bind.h"
#include "checkpoint/write/random_model.h"
#include "cli/bench_model_command.h"
#include "cli/compare_command.h"
#include "cli/doctor_command.h"
#include "cli/inspect_command.h"
#include "cli/make_model_command.h"
#include "cli/plan_model_command.h"
#include "cli/quantize_command.h"
#include "tests/checkpoint/support.h"
#include "tests/cli/support.h"
#include "tests/model/made_up_family/twin.h"

namespace fourfold::cli {
namespace {

using checkpoint::Checkpoint;
using checkpoint::MatrixFormat;
using checkpoint::ModelConfig;
using checkpoint::pebble_name;
using checkpoint::TensorRole;
using checkpoint::TensorView;

constexpr const char* kShape = "tiny-pebble";

class RegisteredFamily : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  void make(const std::string& name, const std::string& shape, const std::string& format_name) {
    MakeModelOptions options;
    options.out = at(name);
    options.shape = shape;
    options.format = format_name;
    options.seed = 1;
    ASSERT_EQ(run_make_model(options, captured_.console), kFine);
  }
  // make-model's tiny-glm as "glm", and its tensors under pebble's names as "pebble", without the layer that
  // drafts.
  void make_twins();
  // Of what was printed since the last time.
  void expect_said(std::initializer_list<const char*> parts) {
    const std::string said = captured_.out.str();
    for (const char* part : parts) EXPECT_NE(said.find(part), std::string::npos) << part << " in " << said;
    captured_.out.str("");
  }

  checkpoint::TempFolder folder_;
  Captured captured_;
};

bool is_of_mtp(std::string_view glm) { return glm.starts_with("model.layers.3."); }

void RegisteredFamily::make_twins() {
  make("glm", "tiny-glm", "bf16");
  const Checkpoint glm(at("glm"));
  std::vector<const TensorView*> sources;
  std::vector<checkpoint::TensorSpec> specs;
  for (const TensorView& tensor : glm.tensors()) {
    if (is_of_mtp(tensor.name)) continue;
    sources.push_back(&tensor);
    specs.push_back({pebble_name(tensor.name), tensor.dtype, tensor.shape});
  }
  std::filesystem::create_directory(at("pebble"));
  checkpoint::CheckpointWriter writer(at("pebble"), specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::vector<std::byte> bytes(sources[i]->bytes.size());
    glm.read(sources[i]->bytes, bytes);
    writer.write(i, 0, bytes);
  }
  writer.finish();
  folder_.write("pebble/config.json", config_text(checkpoint::find_shape(kShape), {}, {}, {}));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    std::filesystem::copy_file(folder_.path() / "glm" / name, folder_.path() / "pebble" / name);
}

TEST_F(RegisteredFamily, IsMadeInspectedPlannedAndDiagnosed) {
  for (const char* format_name :
       {"bf16", "modelopt", "modelopt-mixed", "compressed-tensors", "mxfp4", "nvfp4"}) {
    make(format_name, kShape, format_name);
    expect_said({"Pebble, for tests, 3 layers"});
  }
  ASSERT_EQ(run_inspect({.model = at("nvfp4"), .measure = false}, captured_.console), kFine);
  expect_said({"Pebble (pebble), hidden size 128", "  pebbles.N.stones.N.narrow.weight "});
  for (const std::string& model : {at("nvfp4"), std::string(kShape)}) {
    PlanModelOptions options;
    options.model = model;
    options.arch = "sm120";
    options.memory_gb = 24;
    EXPECT_EQ(run_plan_model(options, captured_.console), kFine);
    expect_said({"it fits"});
  }
  DoctorOptions options;
  options.model = at("nvfp4");
  options.root = FOURFOLD_SOURCE_DIR "/tests/doctor/machines/rtx-5090";  // nothing is wrong with it
  EXPECT_EQ(run_doctor(options, captured_.console), kFine) << captured_.out.str();
  expect_said({"model nvfp4: "});
}

// What make-model stores for each role is what it stores for a GLM.
TEST_F(RegisteredFamily, IsStoredAsItsTwinIs) {
  for (const char* format_name : {"modelopt", "modelopt-mixed", "compressed-tensors", "mxfp4", "nvfp4"}) {
    SCOPED_TRACE(format_name);
    const std::string name(format_name);
    make(name, kShape, format_name);
    make(name + "-glm", "tiny-glm", format_name);
    const Checkpoint pebble(at(name)), glm(at(name + "-glm"));
    std::size_t count = 0;
    for (const TensorView& tensor : glm.tensors()) {
      if (is_of_mtp(tensor.name)) continue;
      const TensorView* twin = pebble.find(pebble_name(tensor.name));
      ASSERT_NE(twin, nullptr) << tensor.name;
      EXPECT_EQ(describe(*twin), describe(tensor)) << twin->name;
      ++count;
    }
    EXPECT_EQ(count, pebble.tensors().size());
  }
}

TEST_F(RegisteredFamily, IsHeldAgainstItsTwinsReference) {
  make_twins();
  EXPECT_EQ(run_compare({.model = at("pebble"),
                         .reference = FOURFOLD_SOURCE_DIR "/tests/golden/families/tiny-glm.safetensors"},
                        captured_.console),
            kFine)
      << captured_.out.str();
}

MatrixFormat format_wanted(const checkpoint::Matrix& matrix, MatrixFormat dense) {
  switch (matrix.role) {
    case TensorRole::routed_expert: return MatrixFormat::nvfp4;
    case TensorRole::router:
    case TensorRole::other: return MatrixFormat::bf16;
    default: return dense;
  }
}

// Each matrix in the form that was asked for, and the same bytes as the twin's.
TEST_F(RegisteredFamily, IsQuantisedAsItsTwinIs) {
  make_twins();
  for (const char* format_name : {"modelopt", "compressed-tensors"})
    for (const auto& [dense, wanted] : {std::pair("keep", MatrixFormat::bf16),
                                        {"fp8", MatrixFormat::fp8_tensor},
                                        {"nvfp4", MatrixFormat::nvfp4}}) {
      const std::string name = std::string(format_name) + "-" + dense;
      SCOPED_TRACE(name);
      for (const std::string twin : {"pebble", "glm"}) {
        QuantizeOptions options;
        options.in = at(twin);
        options.out = at(name + twin);
        options.format = format_name;
        options.dense = dense;
        ASSERT_EQ(run_quantize(options, captured_.console), kFine);
      }
      const Checkpoint pebble(at(name + "pebble")), glm(at(name + "glm"));
      const checkpoint::BoundModel model =
          bind_model(pebble, checkpoint::read_model_config(at(name + "pebble")));
      std::set<TensorRole> roles;
      for_each_matrix(model.weights, [&](const checkpoint::Matrix& matrix) {
        EXPECT_EQ(format_of(matrix), format_wanted(matrix, wanted)) << matrix.name;
        roles.insert(matrix.role);
      });
      EXPECT_EQ(roles.size(), 7u);  // all but DeltaNet's
      std::size_t count = 0;
      for (const TensorView& tensor : glm.tensors()) {
        if (is_of_mtp(tensor.name)) continue;
        const TensorView* twin = pebble.find(pebble_name(tensor.name));
        ASSERT_NE(twin, nullptr) << tensor.name;
        std::vector<std::byte> ours(twin->bytes.size()), theirs(tensor.bytes.size());
        pebble.read(twin->bytes, ours);
        glm.read(tensor.bytes, theirs);
        EXPECT_EQ(ours, theirs) << twin->name;
        ++count;
      }
      EXPECT_EQ(count, pebble.tensors().size());
    }
}

TEST_F(RegisteredFamily, IsBenched) {
  BenchModelOptions options;
  options.shape = kShape;
  options.prompt = 8;
  options.tokens = 2;
  EXPECT_EQ(run_bench_model(options, captured_.console), kFine);
  expect_said({"Pebble, for tests: 3 of 3 layers, random weights, experts nvfp4"});
}

}  // namespace
}  // namespace fourfold::cli
