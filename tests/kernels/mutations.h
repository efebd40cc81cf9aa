// Removing synchronisations one at a time: what the mutation tests share. The simulator must report a fault,
// or the result must be wrong. What survives stands in a list with the reason why it is harmless; an unlisted
// survivor fails the test, and so does a listed one that is caught, unless it is said to be seen rarely.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "plan/row_facts.h"
#include "sim/device.h"
#include "sim/site.h"
#include "tests/support/long_test.h"

namespace fourfold::test {

using sim::Mutation;
using sim::SyncOp;
using sim::SyncSite;

// Rows, each with a device of its own: every row is many, and takes all cores.
inline void mutate_rows(const std::vector<std::function<void()>>& rows) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++) try {
        rows[i]();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; wants_all() && i < std::thread::hardware_concurrency(); ++i) others.emplace_back(work);
  work();
}

// Schedules a damaged kernel is run under until one shows the damage. Some show in few of them: a lane that
// falls behind its warp, say, must do so at the ring's last stage. Only what nothing has shown yet costs the
// later ones.
inline std::span<const std::uint64_t> mutation_seeds() {
  static constexpr std::uint64_t seeds[] = {1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return std::span(seeds).first(wants_all() ? 16 : 4);
}

// A synchronisation whose absence changes nothing. Lines move, so a site is known by its operation and its
// source text.
struct Survivor {
  SyncOp op;
  const char* file;  // empty: in any
  const char* text;  // part of the line; empty: any
  const char* why;
  bool (*in)(const plan::RowFacts& row) = [](const plan::RowFacts&) {
    return true;
  };                    // rows it is harmless in
  bool rarely = false;  // not harmless, but few schedules show it: caught or not, both may be
};

// Harmless in every kernel.
inline constexpr Survivor kReleasesSurvive = {
    SyncOp::release_successors, "", "",
    "lets the next kernel start early; without it that kernel starts when this one ends"};

// The source line of a site. Sites know the last part of their file's path only: of files with one name it is
// the one that has the operation there.
inline std::string source_line(const SyncSite& site) {
  std::string found;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(FOURFOLD_SOURCE_DIR "/src/kernels")) {
    if (entry.path().filename() != site.file) continue;
    std::ifstream file(entry.path());
    std::string line;
    for (int number = 0; number < site.line && std::getline(file, line);) ++number;
    if (line.find(name_of(site.op)) != std::string::npos) return line;
    found = line;
  }
  return found;
}

inline const Survivor* listed(std::span<const Survivor> survivors, const SyncSite& site,
                              const plan::RowFacts& row) {
  const std::string line = source_line(site);
  for (const Survivor& survivor : survivors)
    if (survivor.op == site.op && (*survivor.file == 0 || site.file == survivor.file) &&
        line.find(survivor.text) != std::string::npos && survivor.in(row))
      return &survivor;
  return nullptr;
}

// What is run again and again: gives its result as bits, or throws what went wrong.
template <class Bits>
using Run = std::function<std::vector<Bits>()>;

struct Tally {
  int mutations = 0;
  int caught = 0;
  int by_bits = 0;  // of those, by a wrong result and not by a fault
  int survived = 0;
};

// How a damaged run was noticed: empty if it was not.
template <class Bits>
std::string noticed(const Run<Bits>& run, const std::vector<Bits>& expected) {
  try {
    return run() == expected ? "" : "wrong bits";
  } catch (const std::exception& fault) {
    return fault.what();
  }
}

// Mutates every site of the named kernels' files, or of these operations alone; all where a set is empty.
template <class Bits>
void mutate_all(sim::Device& device, const std::string& name, const plan::RowFacts& row,
                std::span<const Survivor> survivors, const Run<Bits>& run, const std::set<std::string>& files,
                const std::set<SyncOp>& ops = {}) {
  const auto start = std::chrono::steady_clock::now();
  Tally tally;
  std::vector<Bits> expected;
  for (const std::uint64_t seed : mutation_seeds().first(4)) {
    device.set_seed(seed);
    const auto out = run();
    if (expected.empty()) expected = out;
    EXPECT_EQ(out, expected) << "seed " << seed << " without any damage";
  }
  const std::vector<SyncSite> sites = device.executed_sites();
  for (const SyncSite& site : sites) {
    if (!files.empty() && !files.contains(site.file)) continue;
    if (!ops.empty() && !ops.contains(site.op)) continue;
    for (const Mutation& mutation : sim::mutations_of(site)) {
      device.install(mutation);
      std::string how;
      for (const std::uint64_t seed : mutation_seeds()) {
        device.set_seed(seed);
        how = noticed(run, expected);
        if (!how.empty()) break;
      }
      device.clear_mutation();
      const Survivor* const survivor = listed(survivors, site, row);
      ++tally.mutations;
      tally.caught += !how.empty();
      tally.by_bits += how == "wrong bits";
      tally.survived += how.empty();
      if (how.empty()) {
        EXPECT_NE(survivor, nullptr) << describe(mutation) << " survives and is on no list:\n  "
                                     << source_line(site);
      } else {
        EXPECT_TRUE(survivor == nullptr || survivor->rarely)
            << describe(mutation) << " is listed as harmless, but: " << how;
      }
    }
  }
  EXPECT_GT(tally.mutations, 0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << format("{}: {} mutations, {} caught ({} by wrong bits), {} survived, {} s\n", name,
                      tally.mutations, tally.caught, tally.by_bits, tally.survived, seconds.count())
            << std::flush;
}

}  // namespace fourfold::test
