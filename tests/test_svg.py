"""SVG as text is XML that a reader of XML agrees with."""

from xml.etree import ElementTree

from assay import svg

NASTY = """<b> & "quoted" 'text' ÷ 1"""


def test_text_and_attributes_come_back_as_they_were() -> None:
    found = ElementTree.fromstring(svg.text(1, 2.25, NASTY, class_=NASTY, text_anchor="end", fill=None))
    assert found.text == NASTY
    assert found.attrib == {"x": "1", "y": "2.2", "class": NASTY, "text-anchor": "end"}


def test_elements_hold_elements() -> None:
    found = ElementTree.fromstring(svg.rect(0, 0, 2, 3, svg.title("tip"), fill="red"))
    assert [(each.tag, each.text) for each in found] == [("title", "tip")]
    assert svg.line(0, 0, 1, 1) == '<line x1="0" y1="0" x2="1" y2="1"/>'


def test_a_sheet_is_a_file_of_its_own() -> None:
    drawn = svg.sheet("heading", 20, 30, 4, [svg.dot(1, 2, 3)])
    found = ElementTree.fromstring(drawn)
    assert found.tag == f"{{{svg.NAMESPACE}}}svg"
    assert found.attrib["viewBox"] == "0 0 20 30"
    assert [each.tag.rpartition("}")[2] for each in found] == ["title", "rect", "text", "circle"]
    assert drawn.endswith("</svg>\n")
