// A model of the hub into the cache, as the hub's own tools lay it out: blobs/ETAG, snapshots/COMMIT/FILE as
// relative links to them, refs/REVISION with the commit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/hub_cache.h"
#include "hub/settings.h"

namespace fourfold::hub {

struct PullListener {
  std::function<void(const std::string& text)> on_fact;    // what is being fetched
  std::function<void(const std::string& text)> on_notice;  // waiting, trying again
  // Of `total` bytes `here` were in the cache before, and `done` are now. One thread at a time.
  std::function<void(std::uint64_t here, std::uint64_t done, std::uint64_t total)> on_progress;
};

struct Pulled {
  std::filesystem::path snapshot;
  std::string commit;
  int files = 0;
  std::uint64_t bytes = 0;    // of these files
  std::uint64_t fetched = 0;  // the rest was here
};

// Only files that we read. Space on the disk is checked first. The snapshot gets its config.json last, and
// refs/REVISION before that: with both it is whole. Throws invalid_request when the hub says no or may not be
// asked, unsupported_model when there is nothing to read, io.
Pulled pull(const checkpoint::HubName& hub, const Settings& settings, const PullListener& listener);

// Whether this program can fetch at all.
bool can_pull();

}  // namespace fourfold::hub
