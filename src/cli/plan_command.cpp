#include "cli/plan_command.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_writer.h"
#include "cli/parse.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/plan/row_table.h"
#include "plan/explain.h"
#include "plan/products.h"
#include "plan/text.h"
#include "plan/w4a16_price.h"

namespace fourfold::cli {
namespace {

using moe_layer::Choice;
using moe_layer::Request;
using moe_layer::Role;
using plan::ArchFacts;

// ---- the table ----

std::string paths_of(const ArchFacts& arch) {
  std::string text;
  const auto add = [&](bool has, std::string_view name) {
    if (has) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(arch.has_bf16_mma, "bf16 mma");
  add(arch.has_wgmma, "wgmma");
  add(arch.has_fp4_mma, "block-scaled FP4 mma");
  add(arch.has_tcgen05, "tcgen05");
  return text;
}

std::string arch_text(const ArchFacts& arch) {
  std::string products;
  for (const plan::Product& product : plan::kProducts)
    if (product.arch->name == arch.name)
      products += fourfold::format("{}{} ({} SMs, {} GB/s)", products.empty() ? "" : ", ", product.name,
                                   product.sm_count, with_commas(product.bandwidth_gb_per_s));
  return plan::paragraph(fourfold::format(
      "{}: a block may use {} bytes of shared memory, an SM has {} and the driver keeps {} a block; "
      "{} registers, "
      "{} threads, {} named barriers a block; tensor paths: {}. Products: {}.",
      arch.name, with_commas(arch.smem_bytes_per_block), with_commas(arch.smem_bytes_per_sm),
      with_commas(arch.smem_reserved_bytes_per_block), with_commas(arch.registers_per_sm),
      with_commas(arch.threads_per_sm), arch.named_barriers, paths_of(arch),
      products.empty() ? "none listed" : products));
}

std::string rowless_text() {
  return plan::paragraph(fourfold::format(
      "Kernels without rows ask for little: routing {} bytes (its scan {}), token forms, combine and "
      "packing none.",
      with_commas(static_cast<long long>(sizeof(moe_route::TableStorage))),
      with_commas(static_cast<long long>(sizeof(moe_route::ScanStorage)))));
}

struct Table {
  std::vector<plan::RowFacts> rows;
  std::vector<plan::RefusedShape> refused;
  int limit_bytes = 0;  // the tightest of the architectures asked for
};

Table table_of(const std::vector<const ArchFacts*>& archs) {
  Table table;
  for (const ArchFacts* arch : archs) {
    const auto rows = kernels::rows_of(*arch);
    const auto refused = kernels::refused_shapes(*arch);
    table.rows.insert(table.rows.end(), rows.begin(), rows.end());
    table.refused.insert(table.refused.end(), refused.begin(), refused.end());
    table.limit_bytes = table.limit_bytes == 0 ? arch->smem_bytes_per_block
                                               : std::min(table.limit_bytes, arch->smem_bytes_per_block);
  }
  return table;
}

int print_table(const PlanOptions& options, const std::vector<const ArchFacts*>& archs,
                const Console& console) {
  const Table table = table_of(archs);
  if (options.json) {
    console.out << plan::table_json(table.rows, table.refused, table.limit_bytes) << "\n";
    return kFine;
  }
  for (const ArchFacts* arch : archs) console.out << arch_text(*arch) << "\n";
  console.out << plan::table_text(table.rows, table.refused) << "\n" << rowless_text();
  if (options.picture) console.out << "\n" << plan::overflow_picture(picture_style(console));
  return kFine;
}

// ---- one tile ----

int print_explanation(const PlanOptions& options, const std::vector<const ArchFacts*>& archs,
                      const Console& console) {
  const auto tile = plan::parse_tile(options.explain);
  if (!tile)
    fail_with_hint(
        Code::invalid_request,
        "Write weight rows x tokens x K, all in elements: 256x128x128. K in bytes (256x128x64B) is another "
        "library's spelling.",
        "'{}' is not a tile", options.explain);
  for (const ArchFacts* arch : archs)
    console.out << plan::explain(*tile, *arch, kernels::rows_of(*arch), picture_style(console));
  return kFine;
}

// ---- the choice ----

struct Answer {
  const ArchFacts* arch;
  Request request;
  Choice choice;
};

std::vector<Role> roles_of(const std::string& text) {
  if (text == "both") return {Role::decode, Role::prefill};
  if (text == "decode") return {Role::decode};
  if (text == "prefill") return {Role::prefill};
  fail_with_hint(Code::invalid_request, "Known roles: decode, prefill, both.", "unknown role '{}'", text);
}

std::string_view activations_name(moe_layer::Activations activations) {
  switch (activations) {
    case moe_layer::Activations::w4a4: return "w4a4";
    case moe_layer::Activations::w8a8: return "w8a8";
    case moe_layer::Activations::w4a16: break;
  }
  return "w4a16";
}

const char* role_name(Role role) { return role == Role::decode ? "decode" : "prefill"; }

constexpr std::string_view kW8a8 = "w8a8";

// auto: as a served model is run there whose experts have input scales. w8a8 is of fp8 matrices alone.
void set_activations(const PlanOptions& options, const ArchFacts& arch, Request& request) {
  const bool is_auto = options.activations == "auto";
  if (options.activations == kW8a8) {
    request.activations = moe_layer::Activations::w8a8;
    request.format = WeightFormat::fp8;
    return;
  }
  request.packed_for_w4a4 =
      is_auto && moe_layer::serves_fp4_prompts(arch) && request.format == WeightFormat::nvfp4;
  if (!is_auto)
    request.activations = parse_activations(options.activations);
  else
    request.activations = request.packed_for_w4a4 && request.role == Role::prefill
                              ? moe_layer::Activations::w4a4
                              : moe_layer::Activations::w4a16;
}

// A dense matrix some of whose inputs are FP4 is one expert of these rows (docs/decisions/0022).
Choice matrix_choice(const ArchFacts& arch, const Request& request) {
  Choice choice;
  if (request.order() == record::BitOrder::fp4 || request.activations == moe_layer::Activations::w8a8) {
    choice = moe_layer::choose_gemm(arch, request);
    choice.down_row = choice.gate_up_row;
    return choice;
  }
  choice.refusal = fourfold::format(
      "--matrix is for {} and FP4 inputs, or --activations w8a8; with 16-bit ones the rows depend on the "
      "number of SMs (run --explain)",
      format_name(WeightFormat::nvfp4));
  return choice;
}

std::vector<Answer> answers_to(const PlanOptions& options, const std::vector<const ArchFacts*>& archs) {
  if ((options.shape.empty() && options.matrix == 0) || options.tokens.empty())
    fail_with_hint(Code::invalid_request,
                   "For example: fourfold plan --choose --shape 397b --tokens 64 --arch sm120",
                   "--choose needs --shape or --matrix, and --tokens");
  Request request;
  request.shape =
      options.matrix != 0 ? moe_layer::Shape{options.matrix, 64, 1, 1} : parse_layer_shape(options.shape);
  request.format = parse_format(options.format);
  std::vector<Answer> answers;
  for (const ArchFacts* arch : archs)
    for (const int tokens : parse_tokens(options.tokens))
      for (const Role role : roles_of(options.role)) {
        request.tokens = tokens;
        request.role = role;
        set_activations(options, *arch, request);
        answers.push_back(
            {arch, request,
             options.matrix != 0 ? matrix_choice(*arch, request) : moe_layer::choose(*arch, request)});
      }
  return answers;
}

std::string answer_text(const Answer& answer) {
  std::string text = fourfold::format("{} {} token{}, {}: ", answer.arch->name, answer.request.tokens,
                                      answer.request.tokens == 1 ? "" : "s", role_name(answer.request.role));
  const Choice& choice = answer.choice;
  if (!choice.ok()) return text + "refused: " + choice.refusal + "\n";
  text += choice.gate_up_row == choice.down_row
              ? choice.gate_up_row
              : fourfold::format("{} + {}", choice.gate_up_row, choice.down_row);
  if (choice.few) text += " (two kernels, routing inside)";
  if (!choice.because.empty()) text += fourfold::format(" ({})", choice.because);
  if (choice.emulated) text += " (the FP4 instruction is emulated here: proof only)";
  return text + "\n";
}

// Who quantises the tokens of a W4A4 prompt: what a shape does not say, a checkpoint's input scales do.
constexpr std::string_view kTokensByNorm =
    "Tokens of W4A4 prompts are quantised by the norm before the layer (norm_fp4) where all its experts have "
    "one input scale, and gathered by GEMM1; where scales differ after routing, once for each expert of a "
    "token (quantize_tokens). Scales are never made one; loading a model says which layers differ.";

constexpr std::string_view kTokenKernels =
    "norm_fp4, or quantize_tokens where the experts' input scales differ";

bool quantises_tokens(const Answer& answer) {
  return answer.choice.ok() && answer.request.activations == moe_layer::Activations::w4a4 &&
         answer.request.role == Role::prefill;
}

// Native rows are a promise that the chip has to keep: what happens if it does not.
std::string answers_text(const std::vector<Answer>& answers) {
  std::string text;
  bool native = false;
  for (const Answer& answer : answers) {
    text += answer_text(answer);
    native = native || (answer.request.activations == moe_layer::Activations::w4a4 && answer.choice.ok() &&
                        !answer.choice.emulated);
  }
  if (std::ranges::any_of(answers, quantises_tokens))
    text += "\n" + plan::paragraph(std::string(kTokensByNorm));
  if (!native) return text;
  return text + "\n" +
         plan::paragraph(fourfold::format("W4A4 is refused on a chip whose FP4 instruction is beyond the "
                                          "bound of its model (`fourfold verify "
                                          "--device cuda` asks it). What remains then has a price: {}.",
                                          plan::w4a16_price()));
}

std::string answers_json(const PlanOptions& options, const std::vector<Answer>& answers) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object();
  if (options.matrix != 0)
    json.member("matrix", options.matrix);
  else
    json.member("shape", options.shape);
  json.key("choices").begin_array();
  for (const Answer& answer : answers) {
    json.begin_object()
        .member("arch", answer.arch->name)
        .member("tokens", answer.request.tokens)
        .member("role", role_name(answer.request.role))
        .member("activations", activations_name(answer.request.activations))
        .member("format", format_name(answer.request.format));
    if (answer.choice.ok())
      json.member("gate_up_row", answer.choice.gate_up_row)
          .member("down_row", answer.choice.down_row)
          .member("few", answer.choice.few)
          .member("emulated", answer.choice.emulated)
          .member("because", answer.choice.because)
          .member("tokens_quantised_by", quantises_tokens(answer) ? kTokenKernels : "");
    else
      json.member("refused", answer.choice.refusal);
    json.end_object();
  }
  json.end_array().end_object();
  return json.finish();
}

int print_choice(const PlanOptions& options, const std::vector<const ArchFacts*>& archs,
                 const Console& console) {
  const std::vector<Answer> answers = answers_to(options, archs);
  const auto emulated =
      std::find_if(answers.begin(), answers.end(), [](const Answer& a) { return a.choice.emulated; });
  if (emulated != answers.end())
    announce(console,
             {"w4a4 on " + std::string(emulated->arch->name), "the emulated FP4 instruction", "a native one",
              "the chip has none; the rows exist there for proof only"},
             options.strict);
  if (options.json)
    console.out << answers_json(options, answers) << "\n";
  else
    console.out << answers_text(answers);
  return std::all_of(answers.begin(), answers.end(), [](const Answer& a) { return a.choice.ok(); }) ? kFine
                                                                                                    : kMiss;
}

}  // namespace

int run_plan(const PlanOptions& options, const Console& console) {
  const std::vector<const ArchFacts*> archs = parse_archs(options.archs);
  if (options.choose) return print_choice(options, archs, console);
  if (!options.shape.empty() || options.matrix != 0 || !options.tokens.empty())
    fail_with_hint(Code::invalid_request, "Add --choose to see which rows a layer of this shape runs with.",
                   "--shape and --tokens mean nothing without --choose");
  if (!options.explain.empty()) return print_explanation(options, archs, console);
  return print_table(options, archs, console);
}

}  // namespace fourfold::cli
