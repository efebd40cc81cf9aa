// Formats of strings.
#include "constrain/formats.h"

#include <vector>

namespace fourfold::constrain {

std::span<const Format> known_formats() {
  static const std::vector<Format> formats = [] {
    const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
    const std::string leap =
        "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
    const std::string date = "(?:" + year + "-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|" +
                             "(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|" + leap + "-02-29)";
    const std::string time =
        "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
    const std::string octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
    const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
    const std::string host = label + "(?:\\." + label + "){0,5}";
    const std::string atom = "[A-Za-z0-9_+-]{1,30}";
    return std::vector<Format>{
        {"date", date},
        {"time", time},
        {"date-time", date + "T" + time},
        {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
        {"ipv4", octet + "(?:\\." + octet + "){3}"},
        {"hostname", host},
        {"email", atom + "(?:\\." + atom + "){0,2}@" + label + "(?:\\." + label + "){1,5}"},
        {"uri", "https?://" + host + "(?::\\d{1,5})?(?:/[A-Za-z0-9._~-]*)*(?:\\?[A-Za-z0-9._~=&-]*)?"},
    };
  }();
  return formats;
}

}  // namespace fourfold::constrain
