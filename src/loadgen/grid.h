// What is measured: cells of users x prompt length x output length x thinking, in tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/prompts.h"

namespace fourfold::loadgen {

struct Cell {
  std::string table;         // which of the report's tables it stands in
  std::int64_t users = 1;    // at once; with a rate: at most
  std::int64_t context = 0;  // prompt tokens; 0: the prompts as they are
  std::int64_t output = 128;
  std::optional<bool> thinking;  // nothing: as the server does by itself
  PromptKind prompts = PromptKind::natural;
  std::int64_t requests = 2;
  std::optional<double> rate = {};  // requests a second; nothing: each user sends when answered

  friend bool operator==(const Cell&, const Cell&) = default;
};

// "4 users, context 1,024, output 128, thinking off, natural prompts"
std::string cell_name(const Cell& cell);

struct GridOptions {
  std::vector<std::int64_t> users{1}, contexts{0}, outputs{128};
  std::optional<bool> thinking;
  PromptKind prompts = PromptKind::natural;
  std::int64_t rounds = 2;      // requests of each user
  std::vector<double> rates;    // instead of users
  std::int64_t requests = 64;   // of each rate
  std::int64_t rate_users = 0;  // at once with a rate; 0: all of them
};
std::vector<Cell> plain_grid(const GridOptions& options);

// The tables owners of these cards compare; lengths times scale, at least 16 tokens.
std::vector<Cell> field_grid(double scale);

// What is too much for this server or this hour.
struct Bounds {
  std::optional<std::int64_t> users, context, output;
  std::optional<std::int64_t> positions;  // of prompt and answer together
};
// Why a cell is left out; empty when it is not.
std::string why_skipped(const Cell& cell, const Bounds& bounds);

}  // namespace fourfold::loadgen
