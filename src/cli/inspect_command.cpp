#include "cli/inspect_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/read_speed.h"
#include "checkpoint/family.h"
#include "checkpoint/quantization.h"
#include "cli/figures.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"
#include "model/forward.h"
#include "model/inspect.h"
#include "plan/products.h"

namespace fourfold::cli {
namespace {

// Room beside the weights for caches and the runtime, as a share of what is sold.
constexpr double kUsableShare = 0.92;

struct Machine {
  std::string name;
  double gb_per_s = 0;
  int cards = 1;  // so many hold the weights; they read their shares at the same time
  std::string evidence;
};

struct Facts {
  std::vector<model::MatrixGroup> groups;
  model::TokenBytes token;
  model::TokenBytes draft;
  model::ParameterCount parameters;
  checkpoint::Quantization quantization;
  std::uint64_t matrix_bytes = 0;
  std::vector<Machine> machines;
};

Facts gather(const OpenModel& model, const InspectOptions& options) {
  const backend::Program program =
      model::build_program(model.config, model.bound.weights, model::Activations::automatic);
  Facts facts;
  facts.groups = model::group_matrices(model.bound.weights);
  facts.token = model::token_bytes(program, backend::Pass::main, options.context);
  facts.draft = model::token_bytes(program, backend::Pass::draft, options.context);
  facts.parameters = model::count_parameters(program);
  facts.quantization = checkpoint::read_quantization(model.folder);
  for (const model::MatrixGroup& group : facts.groups) facts.matrix_bytes += group.bytes;
  for (const plan::Product& product : plan::kProducts) {
    const double room = kUsableShare * (1 << 20) * product.memory_mib;
    int cards = 1;  // weights are cut in halves, quarters, eighths
    while (static_cast<double>(facts.matrix_bytes) > room * cards) cards *= 2;
    facts.machines.push_back({std::string(product.name), static_cast<double>(product.bandwidth_gb_per_s),
                              cards, std::string(product.evidence)});
  }
  if (options.measure)
    facts.machines.push_back(
        {"this machine's CPU", measure_read_gb_per_s(), 1, "measured now, all cores reading"});
  return facts;
}

double tokens_per_s(const Facts& facts, const Machine& machine) {
  return machine.gb_per_s * machine.cards * 1e9 / facts.token.total();
}

struct Share {
  const char* name;
  double bytes;
};

std::vector<Share> shares_of(const model::TokenBytes& bytes) {
  std::vector<Share> shares{{"attention", bytes.attention},
                            {"DeltaNet", bytes.delta},
                            {"routed experts", bytes.routed},
                            {"shared experts", bytes.shared},
                            {"dense MLPs", bytes.dense_mlp},
                            {"routers", bytes.router},
                            {"head", bytes.head},
                            {"embedding", bytes.embedding},
                            {"other", bytes.other},
                            {"caches and states", bytes.state}};
  std::erase_if(shares, [](const Share& share) { return share.bytes == 0; });
  return shares;
}

template <class... Args>
void print_line(std::ostream& out, const char* pattern, const Args&... args) {
  char line[256];
  std::snprintf(line, sizeof line, pattern, args...);
  out << line;
}

void print_model(const OpenModel& model, const Facts& facts, std::ostream& out) {
  const checkpoint::ModelConfig& config = model.config;
  const auto full = std::count_if(config.layers.begin(), config.layers.end(), [](const auto& layer) {
    return layer.mixer == checkpoint::MixerKind::full_attention;
  });
  out << fourfold::format("{}\n  {} ({}), hidden size {}, vocabulary {}, up to {} positions\n",
                          model.folder.string(), config.family->name, config.architecture, config.hidden_size,
                          with_commas(config.vocab_size), with_commas(config.position_limit));
  if (config.latent)
    out << fourfold::format(
        "  {} layers of latent attention ({} heads; a latent of {} and a key of {} for a token)\n",
        config.layer_count(), config.attention.head_count, config.latent->latent_dim,
        config.latent->turned_dim);
  else
    out << fourfold::format("  {} layers: {} full attention ({} heads, {} for keys, of {}), {} DeltaNet\n",
                            config.layer_count(), full, config.attention.head_count,
                            config.attention.kv_head_count, config.attention.head_dim,
                            config.layer_count() - full);
  std::map<std::int64_t, std::int64_t> windows;
  for (const checkpoint::LayerKind& layer : config.layers)
    if (layer.window > 0) ++windows[layer.window];
  for (const auto& [window, count] : windows)
    out << fourfold::format("  {} of them attend to the last {} positions alone\n", count, window);
  if (config.moe)
    out << fourfold::format("  {} experts of {}, {} a token{}\n", config.moe->expert_count,
                            config.moe->intermediate_size, config.moe->experts_per_token,
                            config.moe->shared_intermediate_size > 0 ? ", and a shared one" : "");
  out << (model.has_mtp() ? "  an MTP layer for drafts\n" : "  no MTP layer\n");
  out << fourfold::format("  {} weights, {} active for a token; {} in {}, {}\n",
                          as_count(facts.parameters.total), as_count(facts.parameters.active),
                          counted(std::ssize(model.checkpoint.tensors()), "tensor"),
                          counted(std::ssize(model.checkpoint.shards()), "file"),
                          as_bytes(static_cast<double>(model.checkpoint.tensor_bytes())));
  out << "  quantised: " << checkpoint::quant_method_name(facts.quantization.method)
      << (facts.quantization.quantized() ? facts.quantization.made_for_fp4_activations()
                                               ? ", for FP4 activations"
                                               : ", for 16-bit activations"
                                         : "")
      << "\n";
  if (facts.quantization.kv_cache != checkpoint::KvCacheScheme::none)
    out << "  keys and values: made for " << checkpoint::kv_cache_name(facts.quantization.kv_cache)
        << "; --kv decides\n";
  for (const std::string& skipped : model.bound.skipped) out << "  not used: " << skipped << "\n";
}

void print_groups(const Facts& facts, std::ostream& out) {
  out << "\nmatrices\n";
  print_line(out, "  %-64s %-10s %16s %7s %10s\n", "name", "format", "rows x columns", "count", "MB");
  for (const model::MatrixGroup& group : facts.groups) {
    const std::string format =
        std::string(checkpoint::format_name(group.format)) + (group.input_scale ? "+in" : "");
    const std::string size = fourfold::format("{} x {}", group.rows, group.columns);
    print_line(out, "  %-64s %-10s %16s %7lld %10.2f\n", group.pattern.c_str(), format.c_str(), size.c_str(),
               static_cast<long long>(group.count), static_cast<double>(group.bytes) / 1e6);
  }
}

void print_speed(const Facts& facts, const InspectOptions& options, std::ostream& out) {
  out << fourfold::format("\none decoded token, {} positions behind it, reads and writes\n", options.context);
  for (const Share& share : shares_of(facts.token))
    print_line(out, "  %-20s %12.3f MB  %5.1f %%\n", share.name, share.bytes / 1e6,
               100 * share.bytes / facts.token.total());
  print_line(out, "  %-20s %12.3f MB\n", "together", facts.token.total() / 1e6);
  if (facts.draft.total() > 0)
    print_line(out, "  %-20s %12.3f MB more\n", "each draft", facts.draft.total() / 1e6);
  out << "\nno faster than (one user, no drafts; bandwidth alone)\n";
  for (const Machine& machine : facts.machines)
    print_line(out, "  %-36s %2d x %7s GB/s %12s tokens/s  %s\n", machine.name.c_str(), machine.cards,
               rounded(machine.gb_per_s).c_str(), rounded(tokens_per_s(facts, machine)).c_str(),
               machine.evidence.c_str());
}

std::string to_json(const OpenModel& model, const Facts& facts, const InspectOptions& options) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("folder", model.folder.string());
  json.member("family", model.config.family->name);
  json.member("architecture", model.config.architecture).member("layers", model.config.layer_count());
  json.member("hidden_size", model.config.hidden_size).member("vocab_size", model.config.vocab_size);
  json.member("mtp", model.has_mtp()).member("weights", facts.parameters.total);
  json.member("active_weights", facts.parameters.active);
  json.member("tensor_count", model.checkpoint.tensors().size());
  json.member("tensor_bytes", model.checkpoint.tensor_bytes());
  json.member("quant_method", checkpoint::quant_method_name(facts.quantization.method));
  json.member("fp4_activations", facts.quantization.made_for_fp4_activations());
  json.member("kv_cache", checkpoint::kv_cache_name(facts.quantization.kv_cache));
  json.key("matrices").begin_array();
  for (const model::MatrixGroup& group : facts.groups) {
    json.begin_object().member("name", group.pattern).member("format", checkpoint::format_name(group.format));
    json.member("rows", group.rows).member("columns", group.columns).member("count", group.count);
    json.member("bytes", group.bytes).member("input_scale", group.input_scale).end_object();
  }
  json.end_array().key("token_bytes").begin_object().member("context", options.context);
  for (const Share& share : shares_of(facts.token)) json.member(share.name, share.bytes);
  json.member("total", facts.token.total()).member("draft", facts.draft.total()).end_object();
  json.key("ceilings").begin_array();
  for (const Machine& machine : facts.machines) {
    json.begin_object().member("machine", machine.name).member("cards", machine.cards);
    json.member("gb_per_s", machine.gb_per_s).member("tokens_per_s", tokens_per_s(facts, machine));
    json.member("evidence", machine.evidence).end_object();
  }
  return json.end_array().end_object().finish();
}

}  // namespace

int run_inspect(const InspectOptions& options, const Console& console) {
  if (!(options.context >= 0)) fail(Code::invalid_request, "--context is {}; at least 0", options.context);
  const auto model = open_model(options.model, console, options.strict);
  const Facts facts = gather(*model, options);
  if (options.json) {
    console.out << to_json(*model, facts, options) << "\n";
    return kFine;
  }
  std::ostringstream out;
  print_model(*model, facts, out);
  print_groups(facts, out);
  print_speed(facts, options, out);
  show(console, out.str());
  return kFine;
}

}  // namespace fourfold::cli
