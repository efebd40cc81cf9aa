// Every way the tables have to run a dense matrix of generated rows. All of them give the same bits, so a
// form may be chosen by measuring: choose_dense() and choose_many() are what runs where none was measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/format.h"
#include "kernels/dense/choose.h"
#include "kernels/dense/choose_many.h"

namespace fourfold::dense {

// What is multiplied: rows and columns of the packed matrix, 1 to kManyTokens tokens.
struct DenseCall {
  int rows = 0;
  int columns = 0;
  WeightFormat format = WeightFormat::bf16;
  TokenSource source = TokenSource::rows;
  int tokens = 1;
  int sm_count = 1;
};

struct DenseForm {
  std::string row;
  int blocks = 0;
  bool norms = false;  // the tokens, itself; else norm_rows goes first where they were to be normed
  bool many = false;   // takes ManyParams
  std::string sum;     // the row launched after it; empty: none
  int sum_blocks = 0;
  std::size_t workspace_bytes = 0;
  std::string refusal;  // why it cannot run this; empty: it can
  bool ok() const { return refusal.empty(); }
};

inline DenseForm many_form(ManyChoice choice) {
  return {choice.multiply,   choice.multiply_blocks, false, true, choice.sum_blocks > 0 ? choice.sum : "",
          choice.sum_blocks, choice.workspace_bytes, {}};
}

// What the table takes without being told.
inline DenseForm default_form(const DenseCall& call) {
  if (call.tokens > kTokens)
    return many_form(choose_many(call.rows, call.columns, call.format, call.tokens, call.sm_count));
  const DenseChoice choice =
      choose_dense(call.rows, call.columns, call.format, call.source, call.tokens, call.sm_count);
  return {
      choice.row, choice.blocks, call.source == TokenSource::norm && !choice.separate_norm, false, {}, 0, 0,
      {}};
}

template <class Row>
DenseForm few_form(const DenseCall& call) {
  constexpr bool norms = std::is_same_v<typename Row::Prologue, NormedRows>;
  const int units = Row::units_of(call.rows / record::kRows);
  DenseForm form{Row::name(), std::min(units, call.sm_count), norms, false, {}, 0, 0, {}};
  if (call.tokens > kTokens)
    form.refusal = format("takes up to {} tokens", kTokens);
  else if (norms && call.source != TokenSource::norm)
    form.refusal = "norms its tokens; these are given";
  else if (norms && !can_norm<Row>(call.columns, call.tokens))
    form.refusal =
        format("{} normed tokens of {} columns leave {} bytes of its ring; {} keep memory busy", call.tokens,
               call.columns, bytes_in_flight<Row>(call.columns, call.tokens), kEnoughInFlight);
  return form;
}

template <class Row>
DenseForm near_form(const DenseCall& call) {
  const int units = Row::units_of(call.rows / record::kRows);
  DenseForm form{Row::name(), std::min(units, call.sm_count), false, false, {}, 0, 0, {}};
  if (call.tokens > kTokens)
    form.refusal = format("takes up to {} tokens", kTokens);
  else if (call.columns > Row::columns_max)
    form.refusal = format("takes up to {} columns", Row::columns_max);
  return form;
}

// Every row of the tables for this format, those that cannot run the call with the reason. A row that has
// more units than SMs stands there twice where an even number of units a block takes fewer blocks.
inline std::vector<DenseForm> dense_forms(const DenseCall& call) {
  using Arch = plan::Sm120;
  std::vector<DenseForm> forms;
  const auto is_wanted = [&]<class Row>() { return Row::Format::name == format_name(call.format); };
  const auto add_few = [&]<class Row>() {
    if (!is_wanted.template operator()<Row>()) return;
    DenseForm form = few_form<Row>(call);
    const int units = Row::units_of(call.rows / record::kRows);
    const int waves = (units + call.sm_count - 1) / call.sm_count;
    const int even = (units + waves - 1) / waves;
    const bool has_even = form.ok() && even < form.blocks;
    forms.push_back(form);
    if (!has_even) return;
    form.blocks = even;
    forms.push_back(form);
  };
  const auto add_many = [&]<class Row>() {
    if (is_wanted.template operator()<Row>())
      forms.push_back(many_form(many_choice<Row>(call.rows, call.columns, call.tokens, call.sm_count)));
  };
  const auto add_tall = [&]<class Row>() {
    if (is_wanted.template operator()<Row>())
      forms.push_back(many_form(tall_choice<Row>(call.tokens, call.sm_count)));
  };
  moe::for_each_row(FewRowsOf<Arch, NormedRows>{}, add_few);
  moe::for_each_row(FewRowsOf<Arch, GivenRows>{}, add_few);
  moe::for_each_row(NearRows<Arch>{}, [&]<class Row>() {
    if (is_wanted.template operator()<Row>()) forms.push_back(near_form<Row>(call));
  });
  moe::for_each_row(ManyRows<Arch>{}, add_many);
  moe::for_each_row(TallRows<Arch>{}, add_tall);
  return forms;
}

// The form of a row by its name, refused where the row cannot run the call or is none of this table's. 0
// blocks: as many as the table takes; others must be possible for the form.
inline DenseForm form_of(const DenseCall& call, std::string_view row, int blocks) {
  std::optional<DenseForm> found;
  for (DenseForm& form : dense_forms(call)) {
    if (form.row != row) continue;
    if (blocks == 0 || form.blocks == blocks || !form.ok()) return std::move(form);
    found = std::move(form);
  }
  DenseForm none{std::string(row), blocks, false, false, {}, 0, 0, {}};
  none.refusal = found ? format("has no grid of {} blocks for {}x{}", blocks, call.rows, call.columns)
                       : format("no row for generated rows and {} weights", format_name(call.format));
  return none;
}

}  // namespace fourfold::dense
