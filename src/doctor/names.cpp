#include "doctor/names.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

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

void replace_words(std::string& text, const std::string& word, const std::string& with) {
  if (word.size() < kNameLengthMin) return;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
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

// Addresses that every machine has.
bool is_everybodys(const std::string& address) {
  return address == "0.0.0.0" || address.starts_with("127.") || address == "::" || address == "::1";
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
    if (!is_whole || is_everybodys(address) || inet_pton(family, address.c_str(), bytes) != 1) {
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
  if (const passwd* entry = getpwuid(getuid()); entry != nullptr) names.user = entry->pw_name;
  if (is_nobody(names.user))
    if (const char* behind = std::getenv("SUDO_USER"); behind != nullptr) names.user = behind;
  if (is_nobody(names.user)) names.user.clear();
  if (is_nobody(names.host)) names.host.clear();
  if (const char* home = std::getenv("HOME"); home != nullptr && std::string_view(home) != "/root")
    names.home = home;
  names.secrets = secrets_here();
  return names;
}

std::string without_names(std::string_view text, const Names& names) {
  std::string out(text);
  for (const std::string& secret : names.secrets) replace_all(out, secret, "(secret)");
  blank_tokens(out);
  replace_words(out, names.home, "/home/user");
  blank_homes(out);
  replace_words(out, names.user, "user");
  replace_words(out, names.host, "host");
  replace_words(out, names.host.substr(0, names.host.find('.')), "host");
  blank_groups(out, {8, 4, 4, 4, 12}, '-');
  blank_groups(out, {2, 2, 2, 2, 2, 2}, ':');
  blank_device_ids(out);
  blank_serials(out);
  blank_addresses(out, AF_INET);
  blank_addresses(out, AF_INET6);
  blank_mail(out);
  return out;
}

}  // namespace fourfold::doctor
