// Responses that are kept so that the next request may go on from them (previous_response_id) and that GET
// may show them. In memory, bounded by bytes; the oldest goes first. Any thread may ask.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/api/conversation.h"

namespace fourfold::server::api {

class ResponseStore {
 public:
  struct Entry {
    std::vector<Turn> turns;  // the whole conversation, with the answer; without instructions
    std::string body;         // the response as it was sent
  };

  explicit ResponseStore(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // False: it is larger than all that may be kept.
  bool put(std::uint64_t tenant, const std::string& id, Entry entry);
  // Null: there is none of this tenant's.
  std::shared_ptr<const Entry> find(std::uint64_t tenant, const std::string& id) const;
  bool erase(std::uint64_t tenant, const std::string& id);

 private:
  using Key = std::pair<std::uint64_t, std::string>;
  struct Held {
    Key key;
    std::shared_ptr<const Entry> entry;
    std::size_t bytes;
  };
  void drop(std::list<Held>::iterator held);

  std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::list<Held> held_;  // the oldest first
  std::map<Key, std::list<Held>::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace fourfold::server::api
