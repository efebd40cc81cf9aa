// So many requests a second for each who asks, with a short burst. Bounded: of many clients without a key the
// ones that have been quiet longest are forgotten.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string>

namespace fourfold::server {

class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kClientsMax = 4096;
  static constexpr double kWaitMost = 1'000'000;  // seconds

  // 0: no limit.
  explicit RateLimiter(double per_second) : rate_(per_second), burst_(std::max(1.0, per_second)) {}

  // Nothing: go on. Else the seconds after which it is worth trying again.
  std::optional<int> take(const std::string& who, Clock::time_point now) {
    if (rate_ <= 0) return std::nullopt;
    if (buckets_.size() >= kClientsMax && !buckets_.contains(who)) forget(now);
    Bucket& bucket = buckets_.try_emplace(who, Bucket{burst_, now}).first->second;
    bucket.tokens =
        std::min(burst_, bucket.tokens + rate_ * std::chrono::duration<double>(now - bucket.time).count());
    bucket.time = now;
    if (bucket.tokens < 1)
      return static_cast<int>(std::min(std::ceil((1 - bucket.tokens) / rate_), kWaitMost));
    bucket.tokens -= 1;
    return std::nullopt;
  }

 private:
  struct Bucket {
    double tokens;
    Clock::time_point time;
  };

  void forget(Clock::time_point now) {
    std::erase_if(buckets_, [&](const auto& entry) {
      return entry.second.tokens + rate_ * std::chrono::duration<double>(now - entry.second.time).count() >=
             burst_;
    });
    if (buckets_.size() < kClientsMax) return;
    const auto oldest = std::min_element(buckets_.begin(), buckets_.end(), [](const auto& a, const auto& b) {
      return a.second.time < b.second.time;
    });
    buckets_.erase(oldest);
  }

  double rate_, burst_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace fourfold::server
