#include "cli/doctor_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "backend/cost.h"
#include "base/error.h"
#include "checkpoint/matrix.h"
#include "cli/load_model.h"
#include "kernels/gpu/gpu.h"
#include "kernels/moe_layer/choose.h"
#include "model/forward.h"
#include "model/inspect.h"
#include "plan/arch.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kDiskBytes = std::size_t{256} << 20;
constexpr std::size_t kDiskBlock = std::size_t{4} << 20;
constexpr std::size_t kDiskAlignment = 4096;

bool is_wide(const backend::Program& program, backend::MatrixId id) {
  const auto format = checkpoint::format_of(*program.matrix(id).matrix);
  return format == checkpoint::MatrixFormat::bf16 || format == checkpoint::MatrixFormat::f16 ||
         format == checkpoint::MatrixFormat::f32;
}

// Bytes of 16-bit (or wider) matrices that one token multiplies with.
double wide_bytes(const backend::Program& program) {
  double bytes = 0;
  for (const backend::Op& op : program.main) {
    const auto* linear = std::get_if<backend::Linear>(&op);
    if (linear != nullptr && is_wide(program, linear->weight))
      bytes += backend::cost_of(program, op, {}).weight_bytes;
    if (const auto* experts = std::get_if<backend::RunExperts>(&op);
        experts != nullptr && is_wide(program, program.expert_set(experts->set).experts.front().gate))
      bytes += backend::cost_of(program, op, {}).weight_bytes;
  }
  return bytes;
}

double step_bytes(const backend::Program& program, int drafts) {
  const backend::StepShape verify{.row_count = drafts + 1, .logits_row_count = drafts + 1};
  const backend::Cost main = backend::cost_of(program, backend::Pass::main, verify);
  const backend::Cost draft = backend::cost_of(program, backend::Pass::draft, {});
  return main.weight_bytes + main.state_bytes + drafts * (draft.weight_bytes + draft.state_bytes);
}

// Which published results are of this model.
std::string size_name(const checkpoint::ModelConfig& config) {
  struct Known {
    std::int64_t layers, hidden;
    const char* name;
  };
  for (const Known& known : {Known{40, 2048, "35B"}, Known{48, 3072, "122B"}, Known{60, 4096, "397B"}})
    if (config.layer_count() == known.layers && config.hidden_size == known.hidden) return known.name;
  return {};
}

// GB/s past the page cache, over the first bytes of the largest file; nothing where the file system does not
// allow that.
std::optional<double> disk_gb_per_s(const std::filesystem::path& folder) {
  std::filesystem::path largest;
  std::uintmax_t most = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (std::error_code error; entry.is_regular_file(error) && entry.file_size(error) > most && !error)
      most = entry.file_size(error), largest = entry.path();
  const int file = open(largest.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (file < 0 || most < 4 * kDiskBlock) {
    if (file >= 0) close(file);
    return std::nullopt;
  }
  const std::unique_ptr<void, void (*)(void*)> block(std::aligned_alloc(kDiskAlignment, kDiskBlock),
                                                     std::free);
  const auto start = std::chrono::steady_clock::now();
  std::size_t total = 0;
  for (ssize_t got = 1; got > 0 && total < kDiskBytes;
       total += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
    got = read(file, block.get(), kDiskBlock);
  close(file);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (total < 4 * kDiskBlock || seconds <= 0) return std::nullopt;
  return static_cast<double>(total) / 1e9 / seconds;
}

// The type of the mount the folder lies in: the longest mount point that begins its path.
std::string file_system(const std::filesystem::path& folder) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(folder, error).string() + "/";
  std::ifstream mounts("/proc/self/mounts");
  std::string device, point, type, rest, best;
  std::size_t longest = 0;
  while (mounts >> device >> point >> type && std::getline(mounts, rest)) {
    const std::string prefix = point == "/" ? point : point + "/";
    if (path.starts_with(prefix) && prefix.size() >= longest) longest = prefix.size(), best = type;
  }
  return best;
}

struct RowQuestion {
  const char* shape;
  int tokens;
  moe_layer::Role role;
};

}  // namespace

doctor::ModelBytes model_bytes(const std::string& model, bool measure_disk, doctor::Facts& facts,
                               const Console& console) {
  const auto open = open_model(model, console);
  const backend::Program program =
      model::build_program(open->config, open->bound.weights, model::Activations::automatic);
  const model::TokenBytes token = model::token_bytes(program, backend::Pass::main, 0);
  doctor::ModelBytes bytes;
  bytes.name = open->folder.filename().string();
  bytes.size = size_name(open->config);
  bytes.file_bytes = static_cast<double>(open->checkpoint.tensor_bytes());
  for (const model::MatrixGroup& group : model::group_matrices(open->bound.weights))
    bytes.matrix_bytes += static_cast<double>(group.bytes);
  bytes.token_bytes = token.total();
  bytes.routed_bytes = token.routed;
  bytes.wide_bytes = wide_bytes(program);
  for (int drafts = 0; drafts <= (open->has_mtp() ? doctor::kDraftsMax : 0); ++drafts)
    bytes.step_bytes[static_cast<std::size_t>(drafts)] = step_bytes(program, drafts);
  if (!measure_disk) return bytes;
  facts.set("model.file_system", file_system(open->folder));
  if (const auto speed = disk_gb_per_s(open->folder)) facts.set("model.disk_gb_per_s", *speed);
  return bytes;
}

std::vector<std::string> our_rows(doctor::Facts& facts) {
  const plan::ArchFacts* arch = plan::find_arch(facts.text_or("gpu.0.cc", ""));
  if (arch == nullptr) return {};
  std::vector<std::string> lines;
  int rows = 0;
  std::string refused = "nothing";
  for (const RowQuestion& question :
       {RowQuestion{"35b", 1, moe_layer::Role::decode}, RowQuestion{"122b", 16, moe_layer::Role::decode},
        RowQuestion{"397b-tp4", 1024, moe_layer::Role::prefill}}) {
    moe_layer::Request request;
    request.shape = moe_layer::parse_shape(question.shape);
    request.tokens = question.tokens;
    request.role = question.role;
    const moe_layer::Choice choice = moe_layer::choose(*arch, request);
    if (!choice.ok()) {
      refused = choice.refusal;
      continue;
    }
    ++rows;
    lines.push_back(fourfold::format("our rows, {} with {} tokens: {}{}", question.shape, question.tokens,
                                     choice.gate_up_row,
                                     choice.gate_up_row == choice.down_row ? "" : " and " + choice.down_row));
  }
  facts.set("ours.rows", rows);
  facts.set("ours.refused", rows > 0 ? "nothing" : refused);
  if (rows > 0) lines.push_back("our rows are chosen by rule, not tuned on this machine");
  return lines;
}

std::vector<std::string> measure_gpus(doctor::Facts& facts) {
  std::vector<std::string> lines;
  const int count = static_cast<int>(facts.number_or("gpus", 0));
  // A server at work is not to be disturbed, and would be half of what is measured.
  const bool busy = facts.text_or("servers", "none") != "none";
  const bool renumbered = !facts.text_or("env.CUDA_VISIBLE_DEVICES", "").empty();
  if (count > 0 && (busy || renumbered))
    lines.push_back(busy ? "GPUs were not measured: a server runs"
                         : "GPUs were not measured: CUDA_VISIBLE_DEVICES gives them other numbers");
  for (int i = 0; i < count && !busy && !renumbered && kernels::why_no_gpu().empty(); ++i) {
    try {
      const auto gpu = kernels::open_gpu(i);
      bench::MoeBenchOptions bench;
      bench.shape_name = "35b";
      bench.shape = moe_layer::parse_shape(bench.shape_name);
      bench.tokens = {4096};
      bench.rounds = 5;
      const bench::MoeBenchReport report = gpu->bench_moe(bench);
      facts.set(doctor::indexed("gpu", i, "measured_gb_per_s"), report.ceiling_gbps);
      if (!report.lines.empty())
        lines.push_back(fourfold::format(
            "GPU {} measured: memory {} GB/s; our MoE layer at 4096 tokens {} TFLOP/s", i,
            static_cast<int>(report.ceiling_gbps), static_cast<int>(report.lines.front().tflops)));
    } catch (const Error& error) {
      // Busy or full: the bandwidth stays unknown, and the report says so.
      lines.push_back(fourfold::format("GPU {} was not measured: {}", i, error.what()));
    }
  }
  if (count < 2 || busy) return lines;
  try {
    const kernels::PeerCheck peers = kernels::check_peers();
    if (peers.tested) {
      facts.set("peers.values", peers.wrong.empty() ? "right" : "wrong");
      facts.set("peers.values_detail", peers.wrong.empty() ? "all pairs" : peers.wrong);
    }
  } catch (const Error& error) {
    lines.push_back(fourfold::format("copies between GPUs were not checked: {}", error.what()));
  }
  return lines;
}

}  // namespace fourfold::cli
