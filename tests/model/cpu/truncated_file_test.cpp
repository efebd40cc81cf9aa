// A model that runs has all it needs in memory: what happens to its file then does not matter.
#include "backend/cpu/cpu.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

TEST(CpuTruncatedFile, TheModelRunsOn) {
  for (const std::string name : {"bf16", "compressed"}) {
    const checkpoint::TempFolder folder;
    std::filesystem::copy(checkpoint::golden_model(name), folder.path(),
                          std::filesystem::copy_options::recursive);
    const Loaded model(folder.path());
    const auto prepared = backend::make_cpu_backend({.threads = 2, .checkpoint = &model.checkpoint})
                              ->prepare(model.program(Activations::f32), kFourSequences);
    const auto rows = part(0, 0, {1, 200, 7, 64, 300});
    const auto before = step(*prepared, backend::Pass::main, {rows});
    for (const auto& file : std::filesystem::directory_iterator(folder.path()))
      if (file.path().extension() == ".safetensors") {
        std::filesystem::permissions(file.path(), std::filesystem::perms::owner_all);
        std::filesystem::resize_file(file.path(), 0);
      }
    EXPECT_EQ(step(*prepared, backend::Pass::main, {rows}), before) << name;
  }
}

}  // namespace
}  // namespace fourfold::model
