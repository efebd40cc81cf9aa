// Server-sent events from the bytes of a body, however they are cut: the data of each event.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fourfold::http {

class EventReader {
 public:
  using Event = std::function<void(std::string_view data)>;

  // Lines end in LF, CR or both; comments and fields other than data are passed over, as the standard says.
  // Throws io for an event of more than 16 MB.
  void take(std::string_view bytes, const Event& event);

 private:
  void line(const Event& event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;
};

}  // namespace fourfold::http
