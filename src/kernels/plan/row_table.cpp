#include "kernels/plan/row_table.h"

#include <algorithm>

#include "all_rows.h"
#include "kernels/launch/row.h"
#include "kernels/moe/chips.h"

namespace fourfold::kernels {
namespace {

using plan::RowFacts;

// Rows of a kernel stand together, in the order in which kernels first appear.
std::vector<RowFacts> grouped(const std::vector<RowFacts>& rows) {
  std::vector<std::string_view> kernels;
  for (const RowFacts& row : rows)
    if (std::find(kernels.begin(), kernels.end(), row.kernel) == kernels.end()) kernels.push_back(row.kernel);
  std::vector<RowFacts> out;
  for (const std::string_view kernel : kernels)
    for (const RowFacts& row : rows)
      if (row.kernel == kernel) out.push_back(row);
  return out;
}

template <class Chip>
std::vector<RowFacts> rows_of_chip() {
  std::vector<RowFacts> rows;
  moe::for_each_row(AllRows<Chip>{}, [&]<class Row>() {
    if constexpr (kind_of<Row>() != RowKind::basic) rows.push_back(Row::facts());
  });
  return grouped(rows);
}

}  // namespace

std::vector<RowFacts> rows_of(const plan::ArchFacts& arch) {
  if (arch == plan::kSm90) return rows_of_chip<moe::Hopper>();
  if (arch == plan::kSm120) return rows_of_chip<moe::Workstation>();
  if (arch == plan::kSm121) return rows_of_chip<moe::Sm121Workstation>();
  return {};
}

}  // namespace fourfold::kernels
