//! A small writer of SVG: elements with attributes, escaped text, nothing else.

use std::fmt::{Display, Write as _};

/// An SVG document under construction; coordinates are pixels from the top left.
#[derive(Debug, Clone)]
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text stands relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 §2.2 has no other control characters.
            c if c.is_control() && !matches!(c, '\t' | '\n') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

impl Svg {
    /// An empty document of that many pixels, white.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { body: String::new(), width, height };
        svg.rectangle((0.0, 0.0), (width, height), "white");
        svg
    }

    fn element(&mut self, name: &str, attributes: &[(&str, &dyn Display)], text: Option<&str>) {
        let _ = write!(self.body, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.body, " {key}=\"{}\"", escape(&value.to_string()));
        }
        let _ = match text {
            Some(text) => writeln!(self.body, ">{}</{name}>", escape(text)),
            None => writeln!(self.body, "/>"),
        };
    }

    /// A filled rectangle from its top left corner.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        let attributes: [(&str, &dyn Display); 5] =
            [("x", &x), ("y", &y), ("width", &width), ("height", &height), ("fill", &fill)];
        self.element("rect", &attributes, None);
    }

    /// A line between two points.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let attributes: [(&str, &dyn Display); 6] = [
            ("x1", &from.0),
            ("y1", &from.1),
            ("x2", &to.0),
            ("y2", &to.1),
            ("stroke", &stroke),
            ("stroke-width", &width),
        ];
        self.element("line", &attributes, None);
    }

    /// A path through points; filled down to `base` when that is given, else stroked.
    pub fn path(&mut self, points: &[(f64, f64)], colour: &str, base: Option<f64>) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut d = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        if let Some(base) = base {
            let _ = write!(d, "L{:.1} {base:.1}L{:.1} {base:.1}Z", last.0, first.0);
        }
        let (fill, stroke) = if base.is_some() { (colour, "none") } else { ("none", colour) };
        let attributes: [(&str, &dyn Display); 4] =
            [("d", &d), ("fill", &fill), ("stroke", &stroke), ("stroke-width", &1)];
        self.element("path", &attributes, None);
    }

    /// A text of that height in pixels at a point of its base line.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, size: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let attributes: [(&str, &dyn Display); 4] =
            [("x", &at.0), ("y", &at.1), ("text-anchor", &anchor), ("font-size", &size)];
        self.element("text", &attributes, Some(text));
    }

    /// The finished document.
    #[must_use]
    pub fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" \
             viewBox=\"0 0 {w} {h}\" font-family=\"sans-serif\" fill=\"#222\">\n{body}</svg>\n",
            w = self.width,
            h = self.height,
            body = self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), Anchor::Middle, 9.0, "a<b & \"c\"\u{1}");
        let text = svg.finish();
        assert!(text.contains("a&lt;b &amp; &quot;c&quot; </text>"), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }

    #[test]
    fn paths_close_when_filled() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.path(&[(0.0, 1.0), (2.0, 3.0)], "red", Some(9.0));
        svg.path(&[], "red", None);
        let text = svg.finish();
        assert!(text.contains("M0.0 1.0L2.0 3.0L2.0 9.0L0.0 9.0Z"), "{text}");
        assert_eq!(text.matches("<path").count(), 1);
    }
}
