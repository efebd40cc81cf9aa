// Files that shrink: while a model is loaded that is an error of the load, at whatever moment it happens; a
// model that runs has all it needs in memory.
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "backend/cpu/cpu.h"
#include "checkpoint/stream.h"
#include "checkpoint/write/random_model.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using checkpoint::TempFolder;

// In several files: modelopt's names, with NVFP4, FP8 and 16-bit matrices.
void write_sharded(const TempFolder& temp) {
  checkpoint::OutputFolder folder(temp.path() / "model");
  checkpoint::RandomModelOptions options;
  options.shape = checkpoint::find_shape("tiny-qwen3-moe");
  options.scheme = checkpoint::scheme_named("modelopt-mixed");
  options.shard_bytes = 100'000;
  checkpoint::write_random_model(folder, options, {5, 6});
  folder.publish();
}

// In one file.
void copy_golden(const TempFolder& temp) {
  std::filesystem::copy(checkpoint::golden_model("compressed"), temp.path() / "model",
                        std::filesystem::copy_options::recursive);
}

std::vector<std::filesystem::path> shards_of(const TempFolder& temp) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path() / "model"))
    if (entry.path().filename().string().starts_with("model") && entry.path().extension() == ".safetensors") {
      std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
      files.push_back(entry.path());
    }
  return files;
}

// What the header takes stays, what it speaks of is gone.
void shrink(const TempFolder& temp) {
  for (const auto& file : shards_of(temp)) {
    const checkpoint::SafetensorsFile opened(file);
    const std::uint64_t data = opened.entries().back().end;
    std::filesystem::resize_file(file, opened.file().size() - data);
  }
}

std::unique_ptr<backend::Prepared> prepare(const Loaded& model, const std::string& backend,
                                           checkpoint::LoadProgress* progress) {
  const backend::Program program = model.program(Activations::f32);
  if (backend == "reference") return backend::ReferenceBackend().prepare(program, kFourSequences);
  return backend::make_cpu_backend({.threads = 2, .progress = progress})->prepare(program, kFourSequences);
}

void expect_ended(const char* when, const std::function<void()>& load) {
  SCOPED_TRACE(when);
  checkpoint::expect_error(Code::io, {"model", ".safetensors: ended at byte", "when it was opened"}, load);
}

class ShrinkingFile : public testing::TestWithParam<void (*)(const TempFolder&)> {};

TEST_P(ShrinkingFile, IsAnErrorOfTheLoadAtEveryMoment) {
  {
    TempFolder temp;
    GetParam()(temp);
    const checkpoint::Checkpoint checkpoint(temp.path() / "model");
    const auto config = checkpoint::read_model_config(temp.path() / "model");
    shrink(temp);
    expect_ended("before binding", [&] { checkpoint::bind_model(checkpoint, config); });
  }
  for (const std::string backend : {"cpu", "reference"}) {
    TempFolder temp;
    GetParam()(temp);
    const Loaded model(temp.path() / "model");
    shrink(temp);
    expect_ended("before the first matrix", [&] { prepare(model, backend, nullptr); });
  }
  for (const int after : {1, 2, 20, 60}) {
    TempFolder temp;
    GetParam()(temp);
    const Loaded model(temp.path() / "model");
    int done = 0;
    checkpoint::LoadProgress progress(0, [&](std::uint64_t, std::uint64_t) {
      if (++done == after) shrink(temp);
    });
    expect_ended("between matrices", [&] { prepare(model, "cpu", &progress); });
    EXPECT_GE(done, after);
  }
}

// Whoever writes the files anew in place makes them shorter and longer again while they are read.
TEST_P(ShrinkingFile, AnyMomentEndsWithAModelOrAnError) {
  TempFolder temp;
  GetParam()(temp);
  const auto files = shards_of(temp);
  std::vector<std::string> contents;
  for (const auto& file : files) contents.push_back(checkpoint::read_file(file));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop)
      for (std::size_t i = 0; i < files.size(); ++i) {
        std::ofstream(files[i], std::ios::binary) << contents[i];
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
  });
  int refused = 0;
  for (int i = 0; i < 20; ++i) try {
      const Loaded model(temp.path() / "model");
      prepare(model, "cpu", nullptr);
    } catch (const Error&) {
      ++refused;
    }
  stop = true;
  writer.join();
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShrinkingFile, testing::Values(copy_golden, write_sharded),
                         [](const auto& layout) { return layout.index == 0 ? "OneFile" : "Shards"; });

TEST(CpuTruncatedFile, TheModelRunsOn) {
  for (const std::string name : {"bf16", "compressed"}) {
    const TempFolder folder;
    std::filesystem::copy(checkpoint::golden_model(name), folder.path(),
                          std::filesystem::copy_options::recursive);
    const Loaded model(folder.path());
    const auto prepared =
        backend::make_cpu_backend({.threads = 2})->prepare(model.program(Activations::f32), kFourSequences);
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
