// Sends requests and reads their streams, any number at a time, on one thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "http/url.h"
#include "loadgen/timeline.h"

namespace fourfold::loadgen {

struct Progress {
  std::size_t done = 0, failed = 0, running = 0, count = 0;
  std::size_t chunks = 0;  // with text, of all requests so far
};

struct DriveOptions {
  http::Url url;
  std::size_t concurrency = 1;  // at most so many at once
  std::vector<double> arrivals =
      {};                  // seconds from the start, one a request; empty: each when another has ended
  double timeout_s = 600;  // for one request, its connection included
  std::function<double()> clock = {};              // seconds; empty: the steady clock
  std::function<bool()> stop = {};                 // asked often: true ends everything, as failures
  std::function<void(const Progress&)> show = {};  // called often
};

// One timeline a request, in their order. A request that goes wrong is a timeline with a failure; this throws
// only when the host has no address.
std::vector<Timeline> drive(const DriveOptions& options, std::span<const std::string> requests);

}  // namespace fourfold::loadgen
