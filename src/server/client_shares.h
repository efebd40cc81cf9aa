// How much of something that all clients share each of them holds. A client may have three times what it
// leaves for others: three quarters of all when it is alone, less the more there are, and never all of it.
// One thread, or under its owner's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace fourfold::server {

class ClientShares {
 public:
  enum class Answer { taken, client_has_its_share, all_is_taken };

  // each_least: what one client can have while it is there, whatever it leaves.
  explicit ClientShares(std::size_t all_max, std::size_t each_least = 0)
      : all_max_(all_max), each_least_(each_least) {}

  Answer take(std::string_view client, std::size_t amount) {
    if (amount == 0) return Answer::taken;
    if (amount > all_max_ - all_) return Answer::all_is_taken;
    const std::size_t left = all_max_ - all_ - amount;
    if (of(client) + amount > std::max(each_least_, kTimesTheRest * left))
      return Answer::client_has_its_share;
    all_ += amount;
    held_.try_emplace(std::string(client), 0).first->second += amount;
    return Answer::taken;
  }
  void give_back(std::string_view client, std::size_t amount) {
    const auto found = held_.find(client);
    if (amount == 0 || found == held_.end()) return;
    all_ -= amount;
    found->second -= amount;
    if (found->second == 0) held_.erase(found);
  }

  std::size_t of(std::string_view client) const {
    const auto found = held_.find(client);
    return found == held_.end() ? 0 : found->second;
  }
  std::size_t all() const { return all_; }
  std::size_t most() const { return all_max_; }
  std::size_t client_count() const { return held_.size(); }

 private:
  static constexpr std::size_t kTimesTheRest = 3;

  std::size_t all_max_, each_least_;
  std::size_t all_ = 0;
  std::map<std::string, std::size_t, std::less<>> held_;
};

}  // namespace fourfold::server
