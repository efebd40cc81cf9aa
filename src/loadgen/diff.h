// Two runs of bench serve, row by row: faster, slower, or no more different than runs of one server are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::loadgen {

enum class Verdict { faster, slower, within_noise };
std::string_view verdict_name(Verdict verdict);

struct Difference {
  std::string row;      // the cell's name
  std::string measure;  // "tok/s", "TTFT p50", "TPOT p50"
  double a = 0, b = 0;
  double change = 0;              // of b against a, as a share; more is better for tok/s, less for times
  double band = 0;                // the larger over the smaller less 1: up to this it is noise
  bool band_is_measured = false;  // from repetitions of both; otherwise assumed
  Verdict verdict = Verdict::within_noise;
};

struct Comparison {
  std::vector<Difference> differences;
  std::vector<std::string> only_a, only_b;  // rows the other has not
  std::vector<std::string> failed;          // rows with failed requests: not compared
  std::vector<std::string> header;          // facts that differ
  bool any_slower() const;
};

// JSON texts that bench serve wrote. The noise band is twice the deviation of the difference, from the
// variation of both runs' repetitions, and at least 2 %; 10 % where a run was not repeated. Throws
// invalid_request for other JSON.
Comparison compare(std::string_view json_a, std::string_view json_b);

std::string to_text(const Comparison& comparison);

}  // namespace fourfold::loadgen
