// Responses that are kept so that the next request may go on from them (previous_response_id) and that GET
// may show them. In memory, bounded by bytes. Where room is needed the oldest of whoever holds the most goes,
// so that one key cannot push out the responses of others who hold less. Any thread may ask.
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

  // False: it is larger than all that may be kept, or than what others who hold less leave of it. Nothing is
  // dropped then.
  bool put(std::uint64_t tenant, const std::string& id, Entry entry);
  // Null: there is none of this tenant's.
  std::shared_ptr<const Entry> find(std::uint64_t tenant, const std::string& id) const;
  bool erase(std::uint64_t tenant, const std::string& id);

 private:
  struct Held {
    std::string id;
    std::shared_ptr<const Entry> entry;
    std::size_t bytes;
  };
  struct Tenant {
    std::list<Held> held;  // the oldest first
    std::map<std::string, std::list<Held>::iterator, std::less<>> by_id;
    std::size_t bytes = 0;
  };
  bool has_room(std::uint64_t tenant, std::size_t bytes) const;
  void drop_oldest_for(std::uint64_t tenant, std::size_t bytes);
  void drop(std::uint64_t tenant, std::list<Held>::iterator held);

  std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Tenant> tenants_;  // those that hold something
  std::size_t bytes_ = 0;
};

}  // namespace fourfold::server::api
