#include "cli/hello.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/format.h"
#include "checkpoint/hub_cache.h"
#include "cli/build_info.h"
#include "cli/figures.h"
#include "cli/find_model.h"
#include "cli/terminal_text.h"
#include "doctor/source.h"
#include "hub/cache.h"
#include "kernels/cpu/isa.h"
#include "kernels/gpu/gpu.h"

namespace fourfold::cli {
namespace {

std::string gpu_words(const HelloFacts& facts) {
  if (facts.gpus.empty()) return "none found; models run on the CPU";
  const HelloFacts::Gpu& first = facts.gpus.front();
  std::string words = (facts.gpus.size() > 1 ? fourfold::format("{} x ", facts.gpus.size()) : "") +
                      terminal_safe(first.name) + (first.bytes > 0 ? ", " + as_bytes(first.bytes) : "");
  return words + (facts.has_cuda ? "" : "; this program was built without CUDA kernels, so the CPU is used");
}

std::string model_words(const std::vector<std::string>& models) {
  constexpr std::size_t shown = 2;
  std::string words = fourfold::format("{} (comes with the program)", kBuiltInModel);
  for (std::size_t i = 0; i < std::min(shown, models.size()); ++i) words += ", " + terminal_safe(models[i]);
  if (models.size() > shown) words += fourfold::format(", and {} more: fourfold list", models.size() - shown);
  return words;
}

HelloFacts facts_of_this_machine() {
  HelloFacts facts{.version = version() + (commit().empty() ? "" : " (" + commit() + ")"),
                   .gpus = {},
                   .has_cuda = kernels::has_cuda_kernels(),
                   .cores = static_cast<int>(std::thread::hardware_concurrency()),
                   .cpu_kernels = std::string(cpu::isa_name(cpu::choose_isa(""))),
                   .models = {}};
  const auto source = doctor::live_source();
  const auto gpus = static_cast<int>(source->number("nvml count").value_or(0));
  for (int i = 0; i < gpus; ++i)
    facts.gpus.push_back(
        {.name = source->text(fourfold::format("nvml {} name", i)),
         .bytes =
             std::strtod(source->text(fourfold::format("nvml {} memory", i)).c_str(), nullptr) * (1 << 20)});
  const std::string memory = source->text("field /proc/meminfo MemTotal");  // "1234 kB"
  facts.memory_bytes = std::strtod(memory.c_str(), nullptr) * 1024;
  for (const hub::CachedModel& model :
       hub::cached_models(checkpoint::hub_cache_folder(checkpoint::hub_environment())))
    if (std::ranges::any_of(model.snapshots, &hub::CachedSnapshot::whole)) facts.models.push_back(model.name);
  return facts;
}

}  // namespace

std::string hello_text(const HelloFacts& facts) {
  const bool gpu = facts.has_cuda && !facts.gpus.empty();
  const std::string model = facts.models.empty() ? "" : " " + terminal_safe(facts.models.front());
  const std::string where = gpu ? " --backend cuda" : "";
  const auto command = [](std::string line, const std::string& what) {
    line.append(line.size() < 40 ? 40 - line.size() : 0, ' ');
    return "  " + line + "  " + what + "\n";
  };
  std::string text = "Fourfold " + facts.version + ": mixture-of-experts models on CPUs and GPUs\n\n";
  text += "  GPU     " + gpu_words(facts) + "\n";
  text +=
      fourfold::format("  CPU     {}, kernels for {}{}\n", counted(facts.cores, "core"), facts.cpu_kernels,
                       facts.memory_bytes > 0 ? "; " + as_bytes(facts.memory_bytes) + " of memory" : "");
  text += "  models  " + model_words(facts.models) + "\n\n";
  text += command("fourfold chat" + model + where, "talk with it, here in the terminal");
  text += command("fourfold serve" + model + where, "a chat page and OpenAI's API, http://127.0.0.1:8000/");
  text += command("fourfold pull ORG/NAME", "fetch a model by its name at the hub");
  return text + "fourfold help lists the rest; fourfold doctor looks for what makes this machine slow.\n";
}

int run_hello(const Console& console) {
  console.out << hello_text(facts_of_this_machine());
  return kFine;
}

}  // namespace fourfold::cli
