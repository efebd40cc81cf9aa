// What the server counts, and all of it as Prometheus text. Names are vLLM's where the meaning is the same,
// and begin with fourfold_ elsewhere. Labels have few values: none comes from a request. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/api/notes.h"
#include "server/http_server.h"
#include "server/workers.h"

namespace fourfold::server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }
  // Of its bounds, the first that at least this share of the values does not exceed; 0 without values.
  double quantile(double share) const;
  void write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // one more: above all bounds
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// Which kernels run, as the backend says it when a step has a new shape. Any thread.
class KernelLines {
 public:
  static constexpr std::size_t kLinesMax = 400;

  // One line or several; what is beyond the limit is counted, not kept.
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at && lines_.size() < kLinesMax)
        lines_.push_back(text.substr(at, end - at));
      else if (end > at)
        ++left_out_;
      at = end + 1;
    }
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out = lines_;
    if (left_out_ > 0) out.push_back("and " + std::to_string(left_out_) + " lines more");
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::size_t left_out_ = 0;
};

// Of whoever tells other machines what becomes of cached blocks.
struct EventCounts {
  std::int64_t batches = 0, dropped = 0, subscribers = 0, subscriber_dropped = 0, replays = 0;
};

// Of what the server is: fixed from start to end, shown by /status.json, /metrics and the first lines.
struct ServerFacts {
  std::string version = {}, commit = {};
  std::string model = {};    // the folder's name, or the hub's
  std::string backend = {};  // "cpu"
  std::string device = {};
  std::vector<backend::MemoryUse> memory = {};
  std::vector<std::string> notices = {};            // what is degraded, one sentence each
  std::shared_ptr<const KernelLines> kernels = {};  // null: nothing is known
  std::function<EventCounts()> events = {};         // none: nobody is told
};

struct Metrics {
  void count_request(std::string_view route, int status) { ++requests[{std::string(route), status}]; }
  void count_finish(engine::Finish finish) { ++finishes[static_cast<std::size_t>(finish)]; }

  void count_note(api::NoteKind kind) { ++notes[static_cast<std::size_t>(kind)]; }

  std::map<std::pair<std::string, int>, std::int64_t> requests;  // by route and status
  std::array<std::int64_t, 7> finishes{};                        // by engine::Finish
  std::array<std::int64_t, std::size(api::kNoteKinds)> notes{};  // by api::NoteKind
  std::int64_t keep_alives = 0, refused_keys = 0, rate_limited = 0;
  Histogram first_token{
      {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160}};
  Histogram between_tokens{
      {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5}};
  Histogram per_token{{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5}};
  Histogram whole{{.1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960}};
  Histogram queued{{.001, .01, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 60, 120, 240}};
  Histogram prompt_tokens{{1, 10, 100, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}};
  Histogram answer_tokens{{1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000}};
};

// One process: memory and open files, by /proc; 0 where there is none.
std::int64_t resident_bytes();
std::int64_t open_descriptors();

std::string prometheus_text(const Metrics& metrics, const engine::EngineStatus& status,
                            const HttpCounts& counts, const Workers::Status& workers,
                            const ServerFacts& facts, std::string_view model_name);

}  // namespace fourfold::server
