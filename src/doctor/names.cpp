#include "doctor/names.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>

extern char** environ;

namespace fourfold::doctor {
namespace {

constexpr std::size_t kNameLengthMin = 3;    // a user "a" would empty every word
constexpr std::size_t kSecretLengthMin = 8;  // "FOO_KEY=1" is none
constexpr std::size_t kSerialLengthMin = 6;
constexpr std::size_t kTokenLengthMin = 16;  // behind its prefix

// Accounts and hosts that images come with: nobody's name, and words of the texts that are cleansed.
constexpr std::array<std::string_view, 9> kNobody{"root", "user",   "ubuntu", "debian",   "admin",
                                                  "host", "nvidia", "docker", "localhost"};
constexpr std::array<std::string_view, 6> kSecretWords{"KEY",      "TOKEN",  "SECRET",
                                                       "PASSWORD", "PASSWD", "CREDENTIAL"};
// How keys begin that people have in their environment or paste into a command.
constexpr std::array<std::string_view, 8> kTokenPrefixes{"hf_",   "sk-",  "ghp_",   "github_pat_",
                                                         "xoxb-", "AKIA", "glpat-", "nvapi-"};

constexpr const char* kPciPrefix = "pci-";

bool is_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; }
bool is_digit(char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; }
bool is_hex(char letter) { return std::isxdigit(static_cast<unsigned char>(letter)) != 0; }
bool is_name_part(char letter) { return is_word(letter) || letter == '-' || letter == '_' || letter == '.'; }

// Where letters of a kind that begin at `at` end.
template <class Is>
std::size_t end_of(std::string_view text, std::size_t at, const Is& is) {
  while (at < text.size() && is(text[at])) ++at;
  return at;
}

// Where `word` begins from `at` on, in capitals or not: a host "Beast" is "beast" to DNS.
std::size_t find_word(const std::string& text, const std::string& word, std::size_t at) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  const auto found =
      std::search(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), word.begin(), word.end(), same);
  return found == text.end() ? std::string::npos : static_cast<std::size_t>(found - text.begin());
}

void replace_words(std::string& text, const std::string& word, const std::string& with) {
  if (word.size() < kNameLengthMin) return;
  for (std::size_t at = find_word(text, word, 0); at != std::string::npos; at = find_word(text, word, at)) {
    const std::size_t end = at + word.size();
    const bool is_whole = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (is_whole) text.replace(at, word.size(), with);
    at += is_whole ? with.size() : 1;
  }
}

void replace_all(std::string& text, const std::string& part, const std::string& with) {
  if (part.empty()) return;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + with.size()))
    text.replace(at, part.size(), with);
}

// Hex digits in groups of these lengths: 8-4-4-4-12 for a UUID, 2:2:2:2:2:2 for a MAC address.
void blank_groups(std::string& text, const std::vector<std::size_t>& lengths, char between) {
  std::size_t size = lengths.size() - 1;
  for (const std::size_t length : lengths) size += length;
  for (std::size_t at = 0; at + size <= text.size(); ++at) {
    std::size_t place = at;
    bool fits = at == 0 || !is_word(text[at - 1]);
    for (std::size_t group = 0; group < lengths.size() && fits; ++group) {
      for (std::size_t i = 0; i < lengths[group] && fits; ++i) fits = is_hex(text[place++]);
      if (group + 1 < lengths.size()) fits = fits && text[place++] == between;
    }
    if (!fits || (place < text.size() && (is_word(text[place]) || text[place] == between))) continue;
    for (std::size_t i = at; i < place; ++i)
      if (text[i] != between) text[i] = '0';
  }
}

// "(root@build7)" of a kernel that was built by hand.
void blank_mail(std::string& text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && is_name_part(text[begin - 1])) --begin;
    const std::size_t end = end_of(text, at + 1, is_name_part);
    if (begin == at || end == at + 1) continue;
    text.replace(begin, end - begin, "user@host");
    at = begin + 4;
  }
}

// Somebody else's folder: the name behind /home/ or /Users/.
void blank_homes(std::string& text) {
  for (const std::string_view parent : {"/home/", "/Users/"})
    for (std::size_t at = text.find(parent); at != std::string::npos; at = text.find(parent, at + 1)) {
      const std::size_t begin = at + parent.size();
      text.replace(begin, end_of(text, begin, is_name_part) - begin, "user");
    }
}

// A driver's short form of a UUID, as CUDA_VISIBLE_DEVICES takes it: GPU-1a2b3c4d.
void blank_device_ids(std::string& text) {
  for (const std::string_view prefix : {"GPU-", "MIG-"})
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      const std::size_t begin = at + prefix.size(), end = end_of(text, begin, is_hex);
      if (end - begin < kNameLengthMin || (end < text.size() && is_word(text[end]))) continue;
      std::fill(text.begin() + static_cast<std::ptrdiff_t>(begin),
                text.begin() + static_cast<std::ptrdiff_t>(end), '0');
    }
}

// "Serial Number : 1320123456789", "serial=0x1F2E...".
void blank_serials(std::string& text) {
  std::string lower = text;
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (std::size_t at = lower.find("serial"); at != std::string::npos; at = lower.find("serial", at + 1)) {
    if (at > 0 && is_word(lower[at - 1])) continue;
    std::size_t begin = at + std::string_view("serial").size();
    for (const std::string_view more : {"number", "no"}) {
      const std::size_t word = end_of(lower, begin, [](char c) { return c == ' ' || c == '_'; });
      if (lower.compare(word, more.size(), more) == 0) begin = word + more.size();
    }
    if (begin < lower.size() && is_word(lower[begin])) continue;  // "serialize"
    begin = end_of(lower, begin, [](char c) { return !is_word(c) && c != '\n'; });
    const std::size_t end = end_of(lower, begin, [](char c) { return is_word(c) || c == '-'; });
    if (end - begin < kSerialLengthMin ||
        std::none_of(lower.begin() + static_cast<std::ptrdiff_t>(begin),
                     lower.begin() + static_cast<std::ptrdiff_t>(end), is_digit))
      continue;
    for (std::size_t i = begin; i < end; ++i) text[i] = '0';
  }
}

// Addresses that every machine has: none, and its own loop.
bool is_everybodys(const unsigned char* bytes, int family) {
  if (family == AF_INET)
    return bytes[0] == 127 || std::all_of(bytes, bytes + 4, [](int b) { return b == 0; });
  return bytes[15] <= 1 && std::all_of(bytes, bytes + 15, [](int b) { return b == 0; });
}

// Runs of letters of an address that `family` can read. A version of four numbers reads as one, too.
void blank_addresses(std::string& text, int family) {
  const auto is_part = [family](char letter) {
    return family == AF_INET ? is_digit(letter) || letter == '.' : is_hex(letter) || letter == ':';
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_part(text[at])) continue;
    const std::size_t end = end_of(text, at, is_part);
    std::size_t last = end;
    while (family == AF_INET && last > at && text[last - 1] == '.') --last;  // of a sentence
    const std::string address = text.substr(at, last - at);
    unsigned char bytes[16];
    const bool is_whole = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (!is_whole || inet_pton(family, address.c_str(), bytes) != 1 || is_everybodys(bytes, family)) {
      at = end;
      continue;
    }
    const std::string with = family == AF_INET ? "0.0.0.0" : "::";
    text.replace(at, last - at, with);
    at += with.size();
  }
}

// What comes behind "Bearer " and prefixes that keys have.
void blank_tokens(std::string& text) {
  const auto is_part = [](char letter) { return is_word(letter) || letter == '-' || letter == '_'; };
  const auto blank = [&](std::string_view prefix, std::size_t least) {
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      const std::size_t begin = at + prefix.size(), end = end_of(text, begin, is_part);
      if ((at > 0 && is_word(text[at - 1])) || end - begin < least) continue;
      text.replace(begin, end - begin, "(secret)");
    }
  };
  for (const std::string_view prefix : kTokenPrefixes) blank(prefix, kTokenLengthMin);
  for (const std::string_view prefix : {"Bearer ", "bearer "}) blank(prefix, kSecretLengthMin);
}

// A PCI address: where it ends, and how the same one is always written. Not there: it ends where it began.
struct PciAddress {
  std::size_t end = 0;
  std::string name = {};
};

// 0000:3b:00.0, 00000000:3B:00.0 as nvidia-smi has it, 3b:00.0 as lspci, 0000:3b:00 as the kernel's log.
PciAddress pci_address(const std::string& text, std::size_t at) {
  const PciAddress none{at};
  const auto group = [&](std::size_t from, std::size_t length) {
    return end_of(text, from, is_hex) == from + length ? text.substr(from, length) : std::string();
  };
  const auto is_at = [&](std::size_t place, char letter) {
    return place < text.size() && text[place] == letter;
  };
  std::string domain = "0000";
  std::size_t place = at;
  const std::size_t first = end_of(text, at, is_hex) - at;
  if (first == 4 || first == 8) {
    domain = text.substr(at + first - 4, 4);
    place += first + 1;
  }
  const bool has_domain = place > at;
  const std::string bus = group(place, 2), device = group(std::min(place + 3, text.size()), 2);
  if ((has_domain && !is_at(place - 1, ':')) || bus.empty() || !is_at(place + 2, ':') || device.empty() ||
      device > "1f")
    return none;
  place += 5;
  const bool has_function =
      is_at(place, '.') && place + 1 < text.size() && text[place + 1] >= '0' && text[place + 1] <= '7';
  if (!has_domain && !has_function) return none;
  const char function = has_function ? text[place + 1] : '0';
  if (has_function) place += 2;
  if (place < text.size() && (is_word(text[place]) || text[place] == ':')) return none;
  std::string name = domain + ":" + bus + ":" + device + "." + function;
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return {place, name};
}

// One above the highest number that the text has already.
int first_pci_number(const std::string& text) {
  int highest = 0;
  const std::string prefix = kPciPrefix;
  for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
    int number = 0;
    std::from_chars(text.data() + at + prefix.size(), text.data() + text.size(), number);
    highest = std::max(highest, number);
  }
  return highest + 1;
}

bool is_nobody(std::string_view name) {
  return std::find(kNobody.begin(), kNobody.end(), name) != kNobody.end();
}

std::vector<std::string> secrets_here() {
  std::vector<std::string> secrets;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || line.size() - equals - 1 < kSecretLengthMin) continue;
    const std::string_view name = line.substr(0, equals);
    if (std::any_of(kSecretWords.begin(), kSecretWords.end(),
                    [&](std::string_view word) { return name.find(word) != std::string_view::npos; }))
      secrets.emplace_back(line.substr(equals + 1));
  }
  // The longest first: one may be a part of another.
  std::sort(secrets.begin(), secrets.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return secrets;
}

}  // namespace

Names names_here() {
  Names names;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) names.host = host;
  if (const passwd* entry = getpwuid(getuid()); entry != nullptr) {
    names.user = entry->pw_name;
    names.homes.emplace_back(entry->pw_dir);
  }
  if (is_nobody(names.user))
    if (const char* behind = std::getenv("SUDO_USER"); behind != nullptr) names.user = behind;
  if (is_nobody(names.user)) names.user.clear();
  if (is_nobody(names.host)) names.host.clear();
  if (const char* home = std::getenv("HOME"); home != nullptr) names.homes.emplace_back(home);
  names.secrets = secrets_here();
  return names;
}

std::string without_names(std::string_view text, const Names& names) {
  std::string out(text);
  for (const std::string& secret : names.secrets) replace_all(out, secret, "(secret)");
  blank_tokens(out);
  for (const std::string& home : names.homes) replace_words(out, home, "/home/user");
  blank_homes(out);
  replace_words(out, names.user, "user");
  replace_words(out, names.host, "host");
  replace_words(out, names.host.substr(0, names.host.find('.')), "host");
  blank_groups(out, {8, 4, 4, 4, 12}, '-');
  // A machine's or a container's: hashes of commits have 40 digits.
  for (const std::size_t digits : {std::size_t{32}, std::size_t{64}}) blank_groups(out, {digits}, '-');
  for (const char between : {':', '-'}) blank_groups(out, {2, 2, 2, 2, 2, 2}, between);
  blank_device_ids(out);
  blank_serials(out);
  blank_addresses(out, AF_INET);
  blank_addresses(out, AF_INET6);
  blank_mail(out);
  return out;
}

std::string with_numbered_pci(std::string_view text) {
  const std::string in(text);
  const int first = first_pci_number(in);
  std::map<std::string, int> numbers;
  std::string out;
  for (std::size_t at = 0; at < in.size();) {
    const bool is_start = at == 0 || (!is_word(in[at - 1]) && in[at - 1] != ':') ||
                          (at >= 4 && in.compare(at - 4, 4, "PCI:") == 0);
    const PciAddress found = is_start ? pci_address(in, at) : PciAddress{at};
    if (found.end == at) {
      out += in[at++];
      continue;
    }
    const int number =
        numbers.try_emplace(found.name, first + static_cast<int>(numbers.size())).first->second;
    out += kPciPrefix + std::to_string(number);
    at = found.end;
  }
  return out;
}

}  // namespace fourfold::doctor
