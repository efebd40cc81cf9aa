// `plan --predict` against every line that was measured on the H200 (bench/results): the constants of
// plan/kernel_time.cpp were fitted to the 35B's and 122B's, all others of Qwen3.5 were held out. The other
// families (gpt-oss, GLM, MiniMax, Mistral) came when the model was fixed: a class of their own.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>

#include "cli/plan_model_command.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe_layer/moe_layer.h"
#include "library/predict.h"
#include "library/predict_layer.h"
#include "plan/instruction_counts.h"
#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

using backend::Pass;
using backend::Role;
using backend::StepRows;
using checkpoint::expect_error;

const plan::ChipRates& h200() {
  static const plan::ChipRates chip = plan::chip_range(*plan::find_product("h200"))->fast;
  return chip;
}

enum class Class { fitted_layers, fitted_models, held_out, families };
const char* name_of(Class lines) {
  switch (lines) {
    case Class::fitted_layers: return "fitted layers";
    case Class::fitted_models: return "fitted models";
    case Class::held_out: return "held out";
    case Class::families: break;
  }
  return "families";
}

struct Measured {
  std::string line;
  Class lines;
  double us;
  std::vector<plan::KernelWork> work = {};
  double error(const plan::ChipRates& chip) const { return library::work_us(work, chip) / us - 1; }
};

using Fields = std::vector<std::string>;
std::vector<Fields> lines_of(const std::string& file) {
  std::ifstream in(std::string(FOURFOLD_SOURCE_DIR) + "/bench/results/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<Fields> lines;
  bool has_header = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    if (!std::exchange(has_header, true)) continue;
    lines.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) lines.back().push_back(field);
  }
  EXPECT_FALSE(lines.empty()) << file;
  return lines;
}

// ---- the MoE layer ----

moe_layer::Request layer_of(const std::string& shape, const Fields& line) {
  moe_layer::Request request;
  request.shape = moe_layer::parse_shape(shape);
  request.format = line.at(1) == "mxfp4" ? WeightFormat::mxfp4 : WeightFormat::nvfp4;
  request.tokens = std::stoi(line.at(3));
  request.role = line.at(4) == "decode" ? moe_layer::Role::decode : moe_layer::Role::prefill;
  return request;
}

plan::Routing routing_of(const Fields& line) {
  return line.at(2) == "zipf"   ? plan::Routing::zipf
         : line.at(2) == "same" ? plan::Routing::same
                                : plan::Routing::uniform;
}

// The row that was measured, where both GEMMs had one: others may be chosen since. Else what is chosen now.
std::string row_of(const Fields& line) {
  return line.at(6).find('+') == std::string::npos ? line.at(6) : std::string();
}

void measured_layers(std::vector<Measured>& out) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90, .persistent_blocks = 132});
  for (const char* file :
       {"moe-h200-35b.csv", "moe-h200-35b-mxfp4.csv", "moe-h200-35b-same.csv", "moe-h200-35b-zipf.csv",
        "moe-h200-122b.csv", "moe-h200-397b.csv", "moe-h200-397b-tp4.csv"})
    for (const Fields& line : lines_of(file)) {
      const std::string shape = line.at(0).substr(1, line.at(0).size() - 2);
      out.push_back({format("layer {} {} {} {}", shape, line.at(1), line.at(2), line.at(3)),
                     shape.starts_with("397b") ? Class::held_out : Class::fitted_layers,
                     std::stod(line.at(7)),
                     library::layer_work(*machine, layer_of(shape, line), routing_of(line), row_of(line))});
    }
}

// ---- whole models ----

struct Steps {
  std::vector<StepRows> rows;
  std::vector<Measured> lines;               // their work: to be found
  std::vector<std::vector<std::size_t>> of;  // by line: its steps
  void add(Measured line, const std::vector<StepRows>& steps) {
    lines.push_back(std::move(line));
    of.emplace_back();
    for (const StepRows& step : steps) {
      of.back().push_back(rows.size());
      rows.push_back(step);
    }
  }
};

void find_work(Steps& steps, const std::string& shape, const std::string& dense, int ranks,
               std::vector<Measured>& out, const backend::cuda::StepWays& ways = {}) {
  PlanModelOptions options;
  options.model = shape;
  options.gpu = "h200";
  options.dense = dense;
  options.ranks = ranks;
  options.max_context = 4096;
  Captured captured;
  const auto work = model_step_work(options, steps.rows, captured.console, ways);
  for (std::size_t i = 0; i < steps.lines.size(); ++i) {
    for (const std::size_t step : steps.of[i])
      steps.lines[i].work.insert(steps.lines[i].work.end(), work[step].begin(), work[step].end());
    out.push_back(steps.lines[i]);
  }
}

// `bench model` times steps 7 to 36 of a sequence: the one in the middle. A prompt goes in pieces of 2,048.
constexpr double kMeanStep = 20;

void add_models(const std::string& file, Class lines, Steps& steps) {
  for (const Fields& line : lines_of(file)) {
    const int users = std::stoi(line.at(1)), context = std::stoi(line.at(2));
    std::vector<StepRows> rows;
    if (line.at(0) == "prompt")
      for (int at = 0; at < context; at += library::kPromptRows)
        rows.push_back({Pass::main, 1, library::kPromptRows, Role::prefill, static_cast<double>(at)});
    else
      rows.push_back({Pass::main, users, 1, Role::decode, context + kMeanStep});
    steps.add({format("{} {} {} {}", file, line.at(0), users, context), lines, 1e3 * std::stod(line.at(4))},
              rows);
  }
}

void add_drafts(Steps& steps) {
  for (const Fields& line : lines_of("mtp-h200-35b-bf16.csv")) {
    const int users = std::stoi(line.at(0)), drafts = std::stoi(line.at(2));
    const double context = 2 * kMeanStep;
    steps.add({format("mtp verify {} {}", users, drafts), Class::held_out, 1e3 * std::stod(line.at(3))},
              {{Pass::main, users, drafts + 1, Role::decode, context}});
    std::vector<StepRows> chain;
    for (int draft = 0; draft < drafts; ++draft)
      chain.push_back({Pass::draft, users, draft == 0 ? drafts + 1 : 1, Role::decode, context});
    if (drafts > 0)
      steps.add({format("mtp drafts {} {}", users, drafts), Class::held_out, 1e3 * std::stod(line.at(4))},
                chain);
  }
}

std::vector<Measured> all_measured() {
  std::vector<Measured> all;
  measured_layers(all);
  Steps bf16, drafts, fp8, nvfp4, large, rank;
  add_models("model-h200-35b-bf16.csv", Class::fitted_models, bf16);
  add_models("model-h200-35b-bf16-context.csv", Class::fitted_models, bf16);
  find_work(bf16, "35b", "keep", 1, all);
  // These were measured before nine and more rows had two launches less a layer (docs/decisions/0048).
  add_drafts(drafts);
  find_work(drafts, "35b", "keep", 1, all, {.combines_norm = false, .many_tables = false});
  add_models("model-h200-35b-fp8.csv", Class::fitted_models, fp8);
  find_work(fp8, "35b", "fp8", 1, all);
  add_models("model-h200-35b-nvfp4.csv", Class::fitted_models, nvfp4);
  find_work(nvfp4, "35b", "nvfp4", 1, all);
  add_models("model-h200-122b-bf16.csv", Class::fitted_models, large);
  find_work(large, "122b", "keep", 1, all);
  add_models("model-h200-397b-tp4-bf16.csv", Class::held_out, rank);
  find_work(rank, "397b", "keep", 4, all);
  for (const std::string model : {"gpt-oss-120b", "glm-4.5-air", "minimax-m2", "mistral-small-4"}) {
    Steps family;
    add_models("model-h200-" + model + "-bf16.csv", Class::families, family);
    find_work(family, model, "keep", 1, all);
  }
  return all;
}

struct Errors {
  std::size_t lines = 0;
  double median = 0, within_model_error = 0, within_25 = 0, most = 0;
};
Errors errors_of(const std::vector<Measured>& all, Class lines, const plan::ChipRates& chip) {
  std::vector<double> sizes;
  for (const Measured& one : all)
    if (one.lines == lines) sizes.push_back(std::abs(one.error(chip)));
  std::sort(sizes.begin(), sizes.end());
  const auto within = [&](double most) {
    const auto count = std::count_if(sizes.begin(), sizes.end(), [&](double size) { return size <= most; });
    return static_cast<double>(count) / static_cast<double>(sizes.size());
  };
  return {sizes.size(), sizes[sizes.size() / 2], within(plan::kModelError), within(0.25), sizes.back()};
}

// What was wanted of the held-out lines: a median of 10 %, 95 % within 25 %. What was reached is better, and
// these bounds are near it: the third digit is the noise of a run. Layers and whole models apart: models miss
// by two to three times as much, so the middle of both moves from one kind to the other with a run. One
// user's steps are 3 to 15 % faster than fitted since launches keep their blocks apart (docs/decisions/0034);
// prompts were measured with slower kernels of DeltaNet (0041), and are 5 to 13 % longer than what is
// predicted now.
struct Recorded {
  Errors layers, models, held_out;
  bool is_as_good() const {
    return layers.median <= 0.026 && models.median <= 0.068 && std::max(layers.most, models.most) <= 0.17 &&
           held_out.median <= 0.065 && held_out.within_model_error >= 0.95 && held_out.within_25 >= 0.97;
  }
};

TEST(Predict, ErrorsOnWhatWasMeasured) {
  const std::vector<Measured> all = all_measured();
  for (const Measured& one : all)
    std::printf("%-8s %-52s %10.1f %10.1f %+6.1f %%\n", name_of(one.lines), one.line.c_str(), one.us,
                library::work_us(one.work, h200()), 100 * one.error(h200()));
  const auto errors_here = [&](Class lines) {
    const Errors errors = errors_of(all, lines, h200());
    std::printf("%s, %zu lines: median %.1f %%, within 25 %% %.1f %%, most %.1f %%\n", name_of(lines),
                errors.lines, 100 * errors.median, 100 * errors.within_25, 100 * errors.most);
    return errors;
  };
  const Recorded recorded{errors_here(Class::fitted_layers), errors_here(Class::fitted_models),
                          errors_here(Class::held_out)};
  const Errors families = errors_here(Class::families);
  EXPECT_EQ(recorded.layers.lines, 35u);
  EXPECT_EQ(recorded.models.lines, 57u);
  EXPECT_EQ(recorded.held_out.lines, 79u);
  EXPECT_EQ(families.lines, 32u);
  EXPECT_TRUE(recorded.is_as_good());
  // Not what was wanted (10 %, 95 %), but what it is.
  EXPECT_LE(families.median, 0.15);
  EXPECT_GE(families.within_25, 0.9);
  // A model that is somewhat worse is noticed: one that has the memory, the clock or the latencies wrong.
  const auto worse = [&](auto&& change) {
    plan::ChipRates chip = h200();
    change(chip);
    return !Recorded{errors_of(all, Class::fitted_layers, chip), errors_of(all, Class::fitted_models, chip),
                     errors_of(all, Class::held_out, chip)}
                .is_as_good();
  };
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.gb_per_s *= 0.92; }));
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.gb_per_s *= 1.08; }));
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.ghz *= 0.9; }));
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.ghz *= 1.1; }));
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.latency *= 0.9; }));
  EXPECT_TRUE(worse([](plan::ChipRates& chip) { chip.latency *= 1.1; }));
}

// Twelve tiles on mma, which no chip with wgmma serves with: two constants and the instructions of each.
TEST(Predict, InstructionsExplainTilesOnMma) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90, .persistent_blocks = 132});
  std::vector<double> errors;
  for (const Fields& line : lines_of("rows-h200-35b.csv")) {
    const std::string& row = line.at(6);
    if (!row.starts_with("moe_gemm") || row.find("w4a16-mma") == std::string::npos) continue;
    const Measured one{row + " " + line.at(3), Class::fitted_layers, std::stod(line.at(7)),
                       library::layer_work(*machine, layer_of("35b", line), routing_of(line), row)};
    std::printf("%-60s %10.1f %10.1f %+6.1f %%\n", one.line.c_str(), one.us,
                library::work_us(one.work, h200()), 100 * one.error(h200()));
    errors.push_back(std::abs(one.error(h200())));
  }
  ASSERT_EQ(errors.size(), 24u);
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[12], 0.1);
  EXPECT_LE(errors.back(), 0.35);
}

// A kernel's new row, or one that is gone, is noticed here; code that changed, where nvdisasm is
// (kernels.instruction_counts).
TEST(Predict, EveryTileOnMmaWasCounted) {
  std::size_t rows = 0;
  for (const auto& [code, arch] : {std::pair{"sm90", &plan::kSm90}, std::pair{"sm120", &plan::kSm120}}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    for (const plan::RowFacts& facts : machine->rows(kernels::RowKind::gemm)) {
      const bool emulated = arch == &plan::kSm90 && facts.row.find("w4a4") != std::string::npos;
      if (!facts.row.starts_with("moe_gemm") || facts.row.find("wgmma") != std::string::npos || emulated)
        continue;
      EXPECT_NE(plan::find_instruction_count(facts.row, code), nullptr)
          << facts.row << " on " << code << ": run tools/count_instructions.py";
      ++rows;
    }
    for (const plan::InstructionCount& count : plan::instruction_counts()) {
      if (count.arch != code) continue;
      EXPECT_TRUE(machine->find(kernels::RowKind::gemm, count.row).found()) << count.row << " is no more";
    }
  }
  EXPECT_EQ(rows, plan::instruction_counts().size());
}

// The launches read what the program has: counted here record by record, in backend/cost.h op by op.
TEST(Predict, LaunchesReadTheProgramsWeights) {
  PlanModelOptions options;
  options.model = "35b";
  options.gpu = "h200";
  options.max_context = 4096;
  for (const int users : {1, 64}) {
    options.users = users;
    Captured captured;
    const StepRows step{Pass::main, users, 1, Role::decode, 0};
    double bytes = 0;
    const auto work = model_step_work(options, std::span(&step, 1), captured.console);
    for (const plan::KernelWork& kernel : work.front()) bytes += kernel.weight_bytes;
    const double states = users * (1 + 1.0 / 64) * 30 * 4 * 32 * 128 * 128;  // of the delta rule's layers
    EXPECT_NEAR((predict_model_step(options, captured.console).bytes - states) / bytes, 1, 0.003) << users;
  }
}

// Sixteen users: the tables of routing beside the shared expert's second matrix, whose weights count.
TEST(Predict, TablesBesideAMatrixReadItsWeights) {
  PlanModelOptions options;
  options.model = "35b";
  options.gpu = "h200";
  options.max_context = 4096;
  options.users = 16;
  Captured captured;
  const StepRows step{Pass::main, options.users, 1, Role::decode, 0};
  const auto work = model_step_work(options, std::span(&step, 1), captured.console);
  int found = 0;
  for (const plan::KernelWork& kernel : work.front()) {
    if (kernel.kernel != "dense_many_table") continue;
    EXPECT_GT(kernel.weight_bytes, 0);
    EXPECT_EQ(kernel.experts, 256);
    plan::KernelWork slow = kernel;
    slow.weight_bytes *= 1000;
    EXPECT_GT(plan::kernel_us(slow, h200()), plan::kernel_us(kernel, h200()));
    ++found;
  }
  EXPECT_GT(found, 0);
}

PlanModelOptions question(const std::string& model, const std::string& gpu) {
  PlanModelOptions options;
  options.model = model;
  options.gpu = gpu;
  options.max_context = 4096;
  options.predict = options.json = true;
  return options;
}

TEST(Predict, RowsAddUpAndDraftsAreInIt) {
  PlanModelOptions options = question("35b", "h200");
  options.drafts = 2;
  options.acceptance = 0.5;
  options.prompt = 2100;
  Captured captured;
  ASSERT_EQ(run_plan_model(options, captured.console), kFine);
  const Json json = read_json(captured.out.str());
  double step = 0, prompt = 0;
  for (const Json& row : json.at("rows").items)
    (row.at("what").text == "prompt" ? prompt : step) += row.at("us").items.at(0).number;
  EXPECT_NEAR(json.at("us").items.at(0).number, step, 1e-6 * step);
  EXPECT_NEAR(json.at("prompt_us").items.at(0).number, prompt, 1e-6 * prompt);
  // Of the chip that was measured both ends are the model's error from what it says, or the memory's peak.
  const double low = json.at("us").items.at(0).number, high = json.at("us").items.at(1).number;
  EXPECT_LE(high / low, 1.0001 * (1 + plan::kModelError) * (1 + plan::kModelError));
  EXPECT_GT(high / low, 1 + plan::kModelError);
  EXPECT_EQ(json.at("tokens").number, 1.75);
  EXPECT_EQ(json.at("parts").items.size(), 2u) << "kernels and drafts";
  EXPECT_GT(json.at("parts").items.at(1).at("us").items.at(0).number, 0);
  EXPECT_FALSE(json.at("constants").items.empty());
  EXPECT_EQ(json.at("fast").at("gb_per_s").number, json.at("slow").at("gb_per_s").number) << "measured";
  EXPECT_EQ(json.at("model_error").number, plan::kModelError);
}

TEST(Predict, OtherChipsAreRanges) {
  for (const char* gpu : {"rtx-pro-6000", "rtx-5090", "dgx-spark"}) {
    PlanModelOptions options = question("35b", gpu);
    options.json = false;
    options.prompt = 2048;
    Captured captured;
    ASSERT_EQ(run_plan_model(options, captured.console), kFine) << gpu;
    EXPECT_TRUE(contains(captured.out.str(), "a prompt of 2,048: ")) << captured.out.str();
    EXPECT_TRUE(contains(captured.out.str(), "assumed")) << captured.out.str();
    EXPECT_TRUE(contains(captured.out.str(), "tokens/s")) << captured.out.str();
  }
}

// Rows of their own: biased and clamped experts, MXFP4, a latent cache.
TEST(Predict, OtherFamiliesOnOtherChips) {
  for (const char* model : {"gpt-oss-120b", "glm-4.5-air", "mistral-small-4"}) {
    PlanModelOptions options = question(model, "rtx-pro-6000");
    options.prompt = 2048;
    Captured captured;
    ASSERT_EQ(run_plan_model(options, captured.console), kFine) << model;
    EXPECT_GT(read_json(captured.out.str()).at("prompt_us").items.at(0).number, 0) << model;
  }
}

// A rank's kernels, and sums over the bus, which nobody measured.
TEST(Predict, PromptsOfSeveralRanksHaveSums) {
  const auto predicted = [](int prompt) {
    PlanModelOptions options = question("397b", "rtx-pro-6000");
    options.prompt = prompt;
    options.ranks = 4;
    Captured captured;
    EXPECT_EQ(run_plan_model(options, captured.console), kFine);
    return read_json(captured.out.str());
  };
  const Json json = predicted(2048), longer = predicted(4096);
  double kernels = 0;
  for (const Json& row : json.at("rows").items)
    if (row.at("what").text == "prompt") kernels += row.at("us").items.at(0).number;
  const Json& sums = json.at("prompt_parts").items.at(0);
  EXPECT_EQ(sums.at("evidence").text, "assumed");
  const double low = sums.at("us").items.at(0).number, high = sums.at("us").items.at(1).number;
  // 120 sums, two a layer, of 2,048 rows of 4,096 f32; each GPU sends half as much again at 34 GB/s.
  const double bytes = 2048.0 * 4096 * 4;
  EXPECT_NEAR(low, 120 * (1.5 * bytes / 34e3 + 2 * 6.1), 1);
  EXPECT_NEAR(high, 120 * (1.5 * bytes / 34e3 + 2 * 8.4 + 21 * bytes / 1e6), 1);
  const double logits = json.at("prompt_parts").items.at(1).at("us").items.at(0).number;
  EXPECT_NEAR(json.at("prompt_us").items.at(0).number, kernels + low + logits, 1e-6 * kernels);
  EXPECT_NEAR(longer.at("prompt_parts").items.at(0).at("us").items.at(0).number, 2 * low, 1e-6 * low);
}

// As it is served: prompts of routed experts in FP4 where the chip has it.
TEST(Predict, PromptsAreThoseThatAreServed) {
  const auto prompt = [](const char* gpu, const char* activations, const char* dense = "keep") {
    PlanModelOptions options = question("35b", gpu);
    options.dense = dense;
    options.json = false;
    options.prompt = 2048;
    options.activations = activations;
    Captured captured;
    EXPECT_EQ(run_plan_model(options, captured.console), kFine) << gpu;
    return captured.out.str();
  };
  EXPECT_TRUE(contains(prompt("rtx-5090", "auto"), "w4a4 nvfp4"));
  EXPECT_FALSE(contains(prompt("rtx-5090", "w4a16"), "w4a4 nvfp4"));
  EXPECT_FALSE(contains(prompt("h200", "auto"), "w4a4"));
  // What --dense nvfp4 makes at load has no input scale: 16-bit activations, and one user's rows of its own.
  const std::string made = prompt("rtx-5090", "auto", "nvfp4");
  EXPECT_TRUE(contains(made, "w4a4 nvfp4")) << made;
  EXPECT_TRUE(contains(made, "dense_pair bf16 nvfp4")) << made;
  EXPECT_FALSE(contains(made, "moe_stream")) << made;
  Captured captured;
  PlanModelOptions options = question("35b", "h200");
  options.activations = "w4a4";
  expect_error(Code::unsupported_op, {"--activations w4a4", "no FP4 tensor cores"},
               [&] { run_plan_model(options, captured.console); });
}

TEST(Predict, RefusesWhatItWasNeverHeldAgainst) {
  Captured captured;
  const auto refused = [&](const PlanModelOptions& options, Code code, std::vector<std::string> words) {
    expect_error(code, words, [&] { run_plan_model(options, captured.console); });
  };
  refused(question("35b", ""), Code::invalid_request, {"--predict needs --gpu"});
  PlanModelOptions options = question("35b", "h200");
  options.prompt = -1;
  refused(options, Code::invalid_request, {"--prompt -1"});
  options.prompt = 0;
  options.users = 513;
  refused(options, Code::invalid_request, {"513 rows a step", "up to 512"});
  options.users = 0;
  refused(options, Code::invalid_request, {"--users 0"});
  options.users = 1;
  options.drafts = 9;
  refused(options, Code::invalid_request, {"--mtp 9"});
}

}  // namespace
}  // namespace fourfold::cli
