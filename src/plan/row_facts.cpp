#include "plan/row_facts.h"

#include <utility>

#include "base/check.h"

namespace fourfold::plan {

RowFacts::RowFacts() = default;
RowFacts::RowFacts(std::string_view its_kernel, std::string its_row, std::string_view its_arch,
                   std::string_view its_path, std::string_view its_format, std::string_view its_role)
    : kernel(its_kernel),
      row(std::move(its_row)),
      arch(its_arch),
      path(its_path),
      format(its_format),
      role(its_role) {}
RowFacts::RowFacts(const RowFacts&) = default;
RowFacts::RowFacts(RowFacts&&) noexcept = default;
RowFacts& RowFacts::operator=(const RowFacts&) = default;
RowFacts& RowFacts::operator=(RowFacts&&) noexcept = default;
RowFacts::~RowFacts() = default;

int parts_sum_bytes(const RowFacts& row) {
  int sum = 0;
  for (const RowPart& part : row.parts) sum += part.bytes;
  return sum;
}

void check_row(const RowFacts& row) {
  check(parts_sum_bytes(row) == row.total_bytes, "the parts of a row sum to its total", row.row,
        parts_sum_bytes(row), row.total_bytes);
}

}  // namespace fourfold::plan
