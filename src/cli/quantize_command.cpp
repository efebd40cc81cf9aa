#include "cli/quantize_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/json_writer.h"
#include "checkpoint/write/quantize.h"
#include "cli/build_info.h"
#include "cli/byte_bar.h"
#include "cli/file_signals.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"

namespace fourfold::cli {
namespace {

using checkpoint::MatrixError;
using checkpoint::StoredAs;

checkpoint::StorageScheme parse_scheme(const QuantizeOptions& options) {
  checkpoint::StorageScheme scheme;
  scheme.routed = StoredAs::nvfp4;
  if (options.format == "compressed-tensors")
    scheme.names = checkpoint::NameConvention::compressed_tensors;
  else if (options.format != "modelopt")
    fail_with_hint(Code::invalid_request, "Known formats: modelopt, compressed-tensors.",
                   "unknown format '{}'", options.format);
  if (options.dense == "keep") return scheme;
  if (options.dense != "fp8" && options.dense != "nvfp4")
    fail_with_hint(Code::invalid_request, "Known: keep, fp8, nvfp4.", "unknown --dense '{}'", options.dense);
  const StoredAs dense = options.dense == "fp8" ? StoredAs::fp8 : StoredAs::nvfp4;
  scheme.shared = scheme.attention = scheme.delta = scheme.head = dense;
  return scheme;
}

// By role and format: how many, the worst of them, and what they cost together.
struct Summary {
  int count = 0;
  double rms_sum = 0;
  const MatrixError* worst = nullptr;
};

std::map<std::string, Summary> summarise(const checkpoint::QuantizeReport& report) {
  std::map<std::string, Summary> summaries;
  for (const MatrixError& error : report.matrices) {
    Summary& summary = summaries[fourfold::format("{}, {}", checkpoint::role_name(error.role),
                                                  checkpoint::format_name(error.format))];
    ++summary.count;
    summary.rms_sum += error.relative_rms;
    if (summary.worst == nullptr || error.relative_rms > summary.worst->relative_rms) summary.worst = &error;
  }
  return summaries;
}

std::string to_json(const QuantizeOptions& options, const checkpoint::QuantizeReport& report) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("in", options.in).member("out", options.out).member("format", options.format);
  json.member("dense", options.dense).member("bytes_before", report.bytes_before);
  json.member("bytes_after", report.bytes_after).key("unsuited").begin_array();
  for (const std::string& name : report.unsuited) json.value(std::string_view(name));
  json.end_array().key("matrices").begin_array();
  for (const MatrixError& error : report.matrices) {
    json.begin_object().member("name", error.name).member("role", checkpoint::role_name(error.role));
    json.member("format", checkpoint::format_name(error.format)).member("rows", error.rows);
    json.member("columns", error.columns).member("relative_rms", error.relative_rms);
    json.member("largest", error.largest).end_object();
  }
  return json.end_array().end_object().finish() + "\n";
}

std::string printed(const QuantizeOptions& options, const checkpoint::QuantizeReport& report) {
  std::ostringstream out;
  out << fourfold::format("{} -> {}: {} matrices quantised, {} -> {} bytes\n", options.in, options.out,
                          report.matrices.size(), with_commas(static_cast<long long>(report.bytes_before)),
                          with_commas(static_cast<long long>(report.bytes_after)));
  out << "difference of the weights, read back from the new files, relative to the weights\n";
  for (const auto& [name, summary] : summarise(report)) {
    char line[200];
    std::snprintf(line, sizeof line, "  %-28s %6d  mean %.4f  worst %.4f  ", name.c_str(), summary.count,
                  summary.rms_sum / summary.count, summary.worst->relative_rms);
    out << line << summary.worst->name << "\n";
  }
  for (const std::string& name : report.unsuited)
    out << "  kept: " << name << " (its columns are no multiple of 16)\n";
  return out.str();
}

// Before the work, which may take hours.
void require_free_report(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
    fail_with_hint(Code::invalid_request, "Give a name that is free, or remove it first.",
                   "--report {}: exists already", path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    fail_with_hint(Code::invalid_request, "Make the folder first.", "--report {}: there is no folder {}",
                   path, folder.string());
}

}  // namespace

int run_quantize(const QuantizeOptions& options, const Console& console) {
  const checkpoint::StorageScheme scheme = parse_scheme(options);
  require_free_report(options.report);
  const auto model = open_model(options.in, console, options.strict);
  const FileSignals signals;
  checkpoint::OutputFolder folder(options.out);
  ByteBar bar(console, "reading");
  const checkpoint::QuantizeReport report = quantize_checkpoint(
      model->checkpoint, model->config, scheme, folder, [&](std::uint64_t done, std::uint64_t total) {
        FileSignals::stop_if_asked();
        bar.update(done, total);
      });
  bar.clear();
  folder.publish();
  if (!options.report.empty()) write_file(options.report, to_json(options, report));
  if (options.json)
    console.out << to_json(options, report);
  else
    show(console, printed(options, report));
  return kFine;
}

}  // namespace fourfold::cli
