#include "loadgen/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/format.h"
#include "loadgen/report.h"

namespace fourfold::loadgen {
namespace {

constexpr double kWidth = 560, kHeight = 320, kLeft = 70, kRight = 20, kTop = 36, kBottom = 66;
// Blue, orange, green, red, purple: apart for most eyes, on light and dark ground.
constexpr std::array<std::string_view, 5> kColors{"#3b82c4", "#d97706", "#3a9d5d", "#c2414b", "#8b5cf6"};
constexpr int kTicksMax = 6;

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool is_log = false;

  double at(double value) const {
    const auto place = [&](double x) { return is_log ? std::log2(x) : x; };
    const double span = place(high) - place(low);
    return from + (span > 0 ? (place(value) - place(low)) / span : 0.5) * (to - from);
  }
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view more = "") {
  return fourfold::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                          escaped(text));
}

std::string tick_text(double value) {
  return value == std::floor(value) ? with_commas(static_cast<long long>(value)) : short_number(value);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) switch (letter) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += letter;
    }
  return out;
}

double tick_step(double top, int most) {
  if (!(top > 0)) return 1;
  double step = std::pow(10, std::floor(std::log10(top / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (top / (step * factor) <= most) return step * factor;
  return step * 10;
}

std::string svg(const Plot& plot) {
  Scale x{.from = kLeft, .to = kWidth - kRight, .is_log = plot.log_x};
  Scale y{.from = kHeight - kBottom, .to = kTop};
  std::vector<double> xs;
  double top = 0;
  for (const Line& line : plot.lines)
    for (const auto& [px, py] : line.points) {
      if (std::find(xs.begin(), xs.end(), px) == xs.end()) xs.push_back(px);
      top = std::max(top, py);
    }
  if (xs.empty()) return "";
  std::sort(xs.begin(), xs.end());
  x.low = xs.front(), x.high = xs.back();
  const double step = tick_step(top, kTicksMax);
  y.high = step * std::ceil(top / step);
  if (y.high <= 0) y.high = 1;

  std::string out = fourfold::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                                     kHeight, escaped(plot.title));
  out += text_at(kWidth / 2, 20, "middle", plot.title, " class=\"title\"");
  for (double value = 0; value <= y.high * 1.0001; value += step) {
    out += fourfold::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", x.from, x.to,
                            y.at(value), y.at(value));
    out += text_at(kLeft - 8, y.at(value) + 4, "end", tick_text(value));
  }
  for (const double value : xs)
    out += text_at(x.at(value), kHeight - kBottom + 18, "middle", tick_text(value));
  out += text_at((x.from + x.to) / 2, kHeight - kBottom + 36, "middle", plot.x_name);
  out += text_at(14, kTop - 8, "start", plot.y_name);
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const std::string_view color = kColors[i % kColors.size()];
    std::string points;
    for (const auto& [px, py] : plot.lines[i].points)
      points += fourfold::format("{},{} ", x.at(px), y.at(py));
    out += fourfold::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n",
                            color, points);
    for (const auto& [px, py] : plot.lines[i].points)
      out += fourfold::format(
          "<circle cx=\"{}\" cy=\"{}\" r=\"3.5\" fill=\"{}\"><title>{}: {}</title></circle>\n", x.at(px),
          y.at(py), color, escaped(plot.lines[i].name), short_number(py));
    const double place = kLeft + static_cast<double>(i) * 160;
    out += fourfold::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", place,
                            kHeight - 18, color);
    out += text_at(place + 18, kHeight - 8, "start", plot.lines[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace fourfold::loadgen
