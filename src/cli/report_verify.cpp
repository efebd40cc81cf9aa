#include "cli/report_verify.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <map>
#include <string>

namespace fourfold::cli {
namespace {

namespace json = boost::json;

double number(const json::object& from, const char* name) { return from.at(name).to_number<double>(); }

double share_of_bound(const json::object& proof) {
  const double bound = number(proof, "bound");
  return bound > 0 ? std::round(1000 * number(proof, "max_error") / bound) / 1000 : 0;
}

json::object row_of(const json::object& proof) {
  json::object row;
  for (const char* name : {"kernel", "row", "op", "machine"}) row[name] = proof.at(name);
  row["proofs"] = 0;
  row["compared"] = 0;
  row["bits_exact"] = proof.at("bits_exact");
  row["worst_share_of_bound"] = 0.0;
  row["verdict"] = "pass";
  return row;
}

void add_proof(const json::object& proof, json::object& row) {
  row["proofs"] = row.at("proofs").as_int64() + 1;
  row["compared"] = row.at("compared").as_int64() + proof.at("compared").to_number<std::int64_t>();
  row["bits_exact"] = row.at("bits_exact").as_bool() && proof.at("bits_exact").as_bool();
  row["worst_share_of_bound"] = std::max(number(row, "worst_share_of_bound"), share_of_bound(proof));
  if (proof.at("verdict").as_string() == "pass") return;
  row["verdict"] = proof.at("verdict");
  row["worst"] = proof;
}

json::object comparisons_of(const json::object& report) {
  std::int64_t cases = 0, bytes = 0, different = 0;
  json::array missed;
  if (const json::value* all = report.if_contains("comparisons"))
    for (const json::value& one : all->as_array()) {
      const json::object& comparison = one.as_object();
      ++cases;
      bytes += comparison.at("bytes").to_number<std::int64_t>();
      different += comparison.at("different").to_number<std::int64_t>();
      if (comparison.at("verdict").as_string() != "pass") missed.push_back(one);
    }
  json::object out{{"cases", cases}, {"bytes", bytes}, {"different", different}};
  if (!missed.empty()) out["missed"] = std::move(missed);
  return out;
}

}  // namespace

json::object summarised_verify(const json::object& report) {
  json::object out;
  for (const auto& member : report)
    if (member.key() != "rows" && member.key() != "comparisons") out[member.key()] = member.value();
  json::array rows;
  std::map<std::string, std::size_t> at;
  for (const json::value& value : report.at("rows").as_array()) {
    const json::object& proof = value.as_object();
    std::string key;
    for (const char* name : {"kernel", "row", "op", "machine"})
      key += std::string(proof.at(name).as_string()) + "|";
    const auto [place, fresh] = at.try_emplace(key, rows.size());
    if (fresh) rows.push_back(row_of(proof));
    add_proof(proof, rows[place->second].as_object());
  }
  out["comparisons"] = comparisons_of(report);
  out["rows"] = std::move(rows);
  return out;
}

}  // namespace fourfold::cli
