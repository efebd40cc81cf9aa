#include "cli/bench_serve_command.h"

#include <sys/utsname.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>

#include "backend/cost.h"
#include "base/error.h"
#include "cli/build_info.h"
#include "cli/interrupt.h"
#include "cli/load_model.h"
#include "cli/parse.h"
#include "cli/terminal_text.h"
#include "doctor/source.h"
#include "json/parse.h"
#include "loadgen/bench.h"
#include "loadgen/diff.h"
#include "model/forward.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kUsersMax = 10'000;
constexpr int kTokensMax = 1 << 20;
constexpr std::size_t kResultBytesMax = std::size_t{64} << 20;

std::vector<std::int64_t> counts(const std::string& text, const char* option, int least, int most) {
  const std::vector<int> values = parse_counts(text, option, least, most);
  return {values.begin(), values.end()};
}

std::optional<bool> parse_thinking(const BenchServeOptions& options) {
  if (options.thinking == "on") return true;
  if (options.thinking == "off") return false;
  if (!options.thinking.empty())
    fail(Code::invalid_request, "--thinking is '{}'; on and off are possible", options.thinking);
  if (options.api == "completions") return std::nullopt;
  return false;
}

// "0.5,2,inf", requests a second.
std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  for (const std::string& part : split_commas(text)) {
    double rate = 0;
    const char* end = part.data() + part.size();
    if (std::from_chars(part.data(), end, rate).ptr != end || !(rate > 0))
      fail(Code::invalid_request, "--request-rate: '{}' is no rate; 0.5,2,inf are (requests a second)", part);
    rates.push_back(rate);
  }
  return rates;
}

// "ttft:500,tpot:30", milliseconds.
loadgen::Limits parse_limits(const std::string& text) {
  loadgen::Limits limits;
  if (text.empty()) return limits;
  for (const std::string& part : split_commas(text)) {
    const auto colon = part.find(':');
    double value = 0;
    const char* end = part.data() + part.size();
    const bool good = colon != std::string::npos &&
                      std::from_chars(part.data() + colon + 1, end, value).ptr == end && value > 0;
    const std::string name = part.substr(0, colon);
    if (!good || (name != "ttft" && name != "tpot" && name != "e2el"))
      fail(Code::invalid_request,
           "--goodput: '{}' is no limit; ttft:500,tpot:30,e2el:10000 are (milliseconds)", part);
    (name == "ttft" ? limits.ttft_ms : name == "tpot" ? limits.tpot_ms : limits.e2el_ms) = value;
  }
  return limits;
}

std::vector<loadgen::Cell> cells_of(const BenchServeOptions& options) {
  if (!options.preset.empty() && options.preset != "field")
    fail(Code::invalid_request, "--preset is '{}'; field is possible", options.preset);
  if (options.preset == "field") return loadgen::field_grid(options.scale);
  if (options.scale != 1) fail(Code::invalid_request, "--scale is for --preset field");
  if (options.rounds < 1 || options.rounds > 100'000)
    fail(Code::invalid_request, "--rounds is {}; 1 to 100000 are possible", options.rounds);
  loadgen::GridOptions grid;
  grid.users = counts(options.users, "--users", 1, kUsersMax);
  grid.contexts = counts(options.contexts, "--context", 0, kTokensMax);
  grid.outputs = counts(options.outputs, "--output", 1, kTokensMax);
  grid.thinking = parse_thinking(options);
  grid.prompts = loadgen::parse_prompt_kind(options.prompts);
  grid.rounds = options.rounds;
  // Random words of no length are one word.
  if (grid.prompts == loadgen::PromptKind::random && options.contexts == "0") grid.contexts = {128};
  if (!options.request_rates.empty()) grid.rates = parse_rates(options.request_rates);
  grid.requests = options.requests;
  grid.rate_users = options.concurrency.value_or(0);
  if (grid.requests < 1 || grid.rate_users < 0)
    fail(Code::invalid_request, "--requests is {} and --concurrency {}; both count requests", grid.requests,
         grid.rate_users);
  return loadgen::plain_grid(grid);
}

// Output tokens a second that memory allows, without drafts.
class Floor {
 public:
  Floor(const std::string& model, double bandwidth, const Console& console)
      : model_(open_model(model, console)),
        program_(model::build_program(model_->config, model_->bound.weights, model::Activations::w4a16)),
        bytes_per_s_(bandwidth * 1e9) {}

  double operator()(std::int64_t users, double context) const {
    const backend::Cost cost =
        backend::cost_of(program_, backend::Pass::main, {users, users, users, context});
    return static_cast<double>(users) * bytes_per_s_ / (cost.weight_bytes + cost.state_bytes);
  }

 private:
  std::unique_ptr<OpenModel> model_;
  backend::Program program_;
  double bytes_per_s_;
};

std::string machine() {
  utsname name{};
  uname(&name);
  const auto source = doctor::live_source();
  std::string cpu = source->text("field /proc/cpuinfo model name");
  std::string text = fourfold::format("{}, {} cores, {} {}", cpu.empty() ? name.machine : cpu.c_str(),
                                      std::thread::hardware_concurrency(), name.sysname, name.release);
  for (int i = 0; i < 16; ++i) {
    const std::string gpu = source->text(fourfold::format("nvml {} name", i));
    if (gpu.empty()) break;
    text += (i == 0 ? "; " : ", ") + gpu;
  }
  return text;
}

// How far it is, on one line of a terminal; without one, a line a cell.
class Bar {
 public:
  explicit Bar(const Console& console) : console_(console) {}
  ~Bar() { clear(); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void show(const loadgen::BenchProgress& progress) {
    if (!console_.err_rewrites()) {
      if (progress.stage != "load" || progress.cell_index == said_) return;
      said_ = progress.cell_index;
      console_.err << fourfold::format("{} of {}: {}\n", said_ + 1, progress.cell_count, progress.cell)
                   << std::flush;
      return;
    }
    const auto now = Clock::now();
    if (shown_ && now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    shown_ = true;
    const auto& load = progress.load;
    const double within =
        load.count > 0 ? static_cast<double>(load.done) / static_cast<double>(load.count) : 0;
    const double share =
        (static_cast<double>(progress.cell_index) + (progress.stage == "load" ? within : 0)) /
        static_cast<double>(std::max<std::size_t>(progress.cell_count, 1));
    constexpr int width = 20;
    const auto full = static_cast<std::size_t>(share * width);
    std::string line = "[" + std::string(full, '#') + std::string(width - full, '.') + "] ";
    line += fourfold::format("{}: {} {} of {}", progress.cell, progress.stage, load.done, load.count);
    if (progress.stage == "load" && progress.seconds > 0.5)
      line += fourfold::format(", {} chunks/s",
                               static_cast<int>(static_cast<double>(load.chunks) / progress.seconds));
    if (load.failed > 0) line += fourfold::format(", {} failed", load.failed);
    console_.err << "\r\033[K" << line << std::flush;
  }
  void clear() {
    if (shown_) console_.err << "\r\033[K" << std::flush;
    shown_ = false;
  }

 private:
  const Console& console_;
  Clock::time_point last_{};
  bool shown_ = false;
  std::size_t said_ = std::numeric_limits<std::size_t>::max();
};

// Reports are passed around; keys are not.
std::string without_key(std::string command, const std::string& key) {
  if (key.empty()) return command;
  for (auto at = command.find(key); at != std::string::npos; at = command.find(key, at + 3))
    command.replace(at, key.size(), "***");
  return command;
}

std::vector<std::pair<std::string, std::string>> header_of(const BenchServeOptions& options,
                                                           const loadgen::Target& target) {
  std::vector<std::pair<std::string, std::string>> header;
  if (!options.label.empty()) header.emplace_back("label", options.label);
  header.emplace_back("date", utc_date());
  header.emplace_back("client", "fourfold " + version() + (commit().empty() ? "" : " (" + commit() + ")"));
  header.emplace_back("client machine", machine());
  header.emplace_back("server", target.version().empty() ? "does not say" : target.version());
  header.emplace_back("model", target.model());
  if (target.context_limit()) header.emplace_back("context limit", with_commas(*target.context_limit()));
  header.emplace_back("api", options.api == "chat" ? "/v1/chat/completions" : "/v1/completions");
  header.emplace_back("sampling",
                      fourfold::format("temperature {}, seed {}", options.temperature, options.seed));
  header.emplace_back("load", options.request_rates.empty()
                                  ? std::string("each user sends when answered")
                                  : fourfold::format("{} requests/s, burstiness {}", options.request_rates,
                                                     options.burstiness));
  header.emplace_back("answers", target.knows_ignore_eos() ? "of full length (ignore_eos)" : "may end early");
  if (options.bandwidth) header.emplace_back("floor at", fourfold::format("{} GB/s", *options.bandwidth));
  header.emplace_back("command", without_key(options.command, options.api_key));
  return header;
}

loadgen::BenchOptions bench_options(const BenchServeOptions& options, const Console& console) {
  loadgen::BenchOptions bench;
  bench.cells = cells_of(options);
  bench.bounds = {options.max_users, options.max_context, options.max_output, options.max_positions};
  bench.limits = parse_limits(options.goodput);
  bench.burstiness = options.burstiness;
  bench.seed = options.seed;
  if (options.warmup < 0) fail(Code::invalid_request, "--warmup is {}; 0 or more", options.warmup);
  bench.warmup = options.warmup;
  bench.repeat = options.repeat;
  bench.time_limit_s = options.time_limit_s;
  if (!options.request_rates.empty() && options.preset == "field")
    fail(Code::invalid_request, "--request-rate and --preset field exclude each other");
  if (options.concurrency && options.request_rates.empty())
    fail(Code::invalid_request,
         "--concurrency caps --request-rate; without it --users is how many are at once");
  if (options.cost) {
    if (!(options.power_w > 0))
      fail(Code::invalid_request, "--cost needs --power W, and --tariff, --price and --life for prices");
    bench.cost = loadgen::CostInputs{options.power_w, options.tariff, options.price, options.life_years};
  }
  if (options.floor_model.empty() != !options.bandwidth.has_value())
    fail(Code::invalid_request, "--model and --bandwidth give the floor together; one is missing");
  if (!options.floor_model.empty()) {
    const auto floor = std::make_shared<Floor>(options.floor_model, *options.bandwidth, console);
    bench.floor = [floor](std::int64_t users, double context) { return (*floor)(users, context); };
  }
  return bench;
}

}  // namespace

int run_bench_serve(const BenchServeOptions& options, const Console& console) {
  if (options.api != "chat" && options.api != "completions")
    fail(Code::invalid_request, "--api is '{}'; chat and completions are possible", options.api);
  if (!(options.timeout_s > 0))
    fail(Code::invalid_request, "--timeout is {}; more than 0", options.timeout_s);
  const http::Url url = http::parse_url(options.url);
  loadgen::BenchOptions bench = bench_options(options, console);
  std::string key = options.api_key;
  if (const char* given = std::getenv("FOURFOLD_API_KEY"); key.empty() && given != nullptr) key = given;
  const loadgen::Target target({.url = url,
                                .key = key,
                                .model = options.served_model,
                                .completions = options.api == "completions",
                                .temperature = options.temperature,
                                .timeout_s = options.timeout_s});
  InterruptWatch interrupt;
  bench.stop = [&] { return interrupt.interrupted(); };
  loadgen::Report report;
  {
    Bar bar(console);
    report = loadgen::run_bench(target, bench,
                                [&](const loadgen::BenchProgress& progress) { bar.show(progress); });
  }
  report.header = header_of(options, target);
  show(console, loadgen::text_table(report));
  if (!options.json.empty()) write_file(options.json, loadgen::to_json(report));
  if (!options.csv.empty()) write_file(options.csv, loadgen::to_csv(report));
  if (!options.html.empty()) write_file(options.html, loadgen::to_html(report));
  for (const loadgen::Row& row : report.rows)
    if (row.measures.failed > 0) return kMiss;
  return kFine;
}

int run_bench_diff(const BenchDiffOptions& options, const Console& console) {
  const loadgen::Comparison comparison = loadgen::compare(json::read_text_file(options.a, kResultBytesMax),
                                                          json::read_text_file(options.b, kResultBytesMax));
  show(console, loadgen::to_text(comparison));
  return comparison.any_slower() || !comparison.failed.empty() ? kMiss : kFine;
}

}  // namespace fourfold::cli
