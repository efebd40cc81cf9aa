// Formats of strings: those of JSON Schema, and pydantic's, zod's and OpenAPI's names for more of the kind.
#include "constrain/formats.h"

#include <map>
#include <vector>

#include "base/check.h"

namespace fourfold::constrain {
namespace {

struct Definition {
  std::string_view name, text;  // <name> stands for a definition above
};

constexpr Definition kParts[] = {
    {"year", R"(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})"},
    {"leap-year", R"(\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"},
    {"month-and-day",
     R"((?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"},
    {"hour-and-minute", R"((?:[01]\d|2[0-3]):[0-5]\d)"},
    // RFC 3339, appendix A: a unit is followed by the next smaller one or by none.
    {"n", R"(\d{1,4})"},
    {"hours", "T(?:<n>H(?:<n>M(?:<n>S)?)?|<n>M(?:<n>S)?|<n>S)"},
    {"days", "<n>Y(?:<n>M(?:<n>D)?)?|<n>M(?:<n>D)?|<n>D"},
    {"octet", R"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"},
    {"small-octet", R"([1-9]?\d)"},
    {"h", "[0-9a-fA-F]"},
    {"h16", "<h>{1,4}"},
    // Without two hyphens in a row, which would begin an encoded name.
    {"label", "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20})?"},
    // The last label of a name; were it a number, the name would be an address.
    {"domain", "[A-Za-z]{2,20}"},
    {"atom", "[A-Za-z0-9_+-]"},
    {"port", R"([1-9]\d{0,3}|[1-5]\d{4})"},
    {"path-character", "[-A-Za-z0-9._~!$&'()*+,;=:@]|%<h>{2}"},
    {"path", R"((?:/<path-character>*)*(?:\?(?:<path-character>|[/?])*)?(?:#(?:<path-character>|[/?])*)?)"},
    {"bits-of-32", R"(3[0-2]|[12]?\d)"},
    {"bits-of-128", R"(12[0-8]|1[01]\d|[1-9]?\d)"},
};

constexpr Definition kFormats[] = {
    {"date", "<year>-<month-and-day>|<leap-year>-02-29"},
    {"time", R"(<hour-and-minute>:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-]<hour-and-minute>))"},
    {"date-time", "<date>T<time>"},
    {"duration", "P(?:<n>W|<days><hours>?|<hours>)"},
    // At most 64 characters before the @, and 253 in all: bounds of 254 and more let every one pass.
    {"email", R"(<atom>{1,30}(?:\.<atom>{1,16}){0,2}@(?:<label>\.){1,4}<domain>)"},
    {"idn-email", "<email>"},
    {"hostname", R"(<label>(?:\.<label>){0,5})"},
    {"idn-hostname", "<hostname>"},
    {"ipv4", R"(<octet>(?:\.<octet>){3})"},
    {"ipv6",
     "(?:<h16>:){7}<h16>|(?:<h16>:){1,7}:|:(?::<h16>){1,7}|::|::(?:ffff:)?<ipv4>|<h16>:(?::<h16>){1,6}|"
     "(?:<h16>:){2}(?::<h16>){1,5}|(?:<h16>:){3}(?::<h16>){1,4}|(?:<h16>:){4}(?::<h16>){1,3}|"
     "(?:<h16>:){5}(?::<h16>){1,2}|(?:<h16>:){6}:<h16>"},
    {"uri", R"(https?://(?:<label>\.){0,4}<domain>(?::<port>)?<path>)"},
    {"uri-reference", "<uri>|<path>"},
    {"iri", "<uri>"},
    {"iri-reference", "<uri-reference>"},
    {"uri-template", R"((?:[A-Za-z0-9._~:/-]|\{[A-Za-z0-9_]{1,30}\})*)"},
    {"uuid", "<h>{8}-<h>{4}-<h>{4}-<h>{4}-<h>{12}"},
    {"uuid1", "<h>{8}-<h>{4}-1<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid3", "<h>{8}-<h>{4}-3<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid4", "<h>{8}-<h>{4}-4<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid5", "<h>{8}-<h>{4}-5<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid6", "<h>{8}-<h>{4}-6<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid7", "<h>{8}-<h>{4}-7<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"uuid8", "<h>{8}-<h>{4}-8<h>{3}-[89abAB]<h>{3}-<h>{12}"},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"relative-json-pointer", R"((?:0|[1-9]\d{0,5})(?:#|<json-pointer>))"},
    // Bits that are cut off at the end are zero.
    {"base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"},
    {"byte", "<base64>"},
    {"base64url", "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?"},
    {"ipv4interface", "<ipv4>/<bits-of-32>"},
    {"ipv6interface", "<ipv6>/<bits-of-128>"},
    // Networks whose host bits are zero for certain.
    {"ipv4network",
     R"(<ipv4>/32|<small-octet>\.<small-octet>\.<small-octet>\.0/24|<small-octet>\.<small-octet>\.0\.0/16|<small-octet>\.0\.0\.0/8)"},
    {"ipv6network", "<ipv6>/128"},
    {"ipvanyaddress", "<ipv4>|<ipv6>"},
    {"ipvanyinterface", "<ipv4interface>|<ipv6interface>"},
    {"ipvanynetwork", "<ipv4network>|<ipv6network>"},
    {"cidrv4", "<ipv4interface>"},
    {"cidrv6", "<ipv6interface>"},
};

class Definitions {
 public:
  const std::string& define(const Definition& definition) {
    std::string out = "(?:";
    for (std::string_view rest = definition.text; !rest.empty();) {
      const std::size_t open = std::min(rest.find('<'), rest.size());
      out += rest.substr(0, open);
      rest.remove_prefix(open);
      if (rest.empty()) break;
      const std::size_t close = rest.find('>');
      const auto known = texts_.find(rest.substr(1, close - 1));
      check(known != texts_.end(), "a format is made of what stands above it");
      out += known->second;
      rest.remove_prefix(close + 1);
    }
    return texts_[definition.name] = out + ")";
  }

 private:
  std::map<std::string_view, std::string> texts_;
};

}  // namespace

std::span<const Format> known_formats() {
  static const std::vector<Format> formats = [] {
    Definitions definitions;
    std::vector<Format> out;
    for (const Definition& part : kParts) definitions.define(part);
    for (const Definition& format : kFormats) out.push_back({format.name, definitions.define(format)});
    return out;
  }();
  return formats;
}

const Format* find_format(std::string_view name) {
  for (const Format& format : known_formats())
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace fourfold::constrain
