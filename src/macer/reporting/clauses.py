"""What certificates can be evidence for in standards and laws on AI, and what they leave open.

The numbers of ISO/IEC 24029-2 are those of its table of contents. Nothing here states conformity,
and none of it is legal advice.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Clause:
    """A place in a document, and how far the certificates reach there."""

    document: str
    clause: str
    topic: str
    covered: str
    not_covered: str


CLAUSES = (
    Clause(
        "ISO/IEC 24029-2:2023",
        "5.3",
        "stability: the answer stays the same over a domain of inputs",
        "Each certificate proves it for an ℓ₂ ball around one input, up to a stated probability of "
        "error, for the smoothed classifier.",
        "The bare network, other domains, and whole regions of inputs. Sensitivity, relevance and "
        "reachability are other properties.",
    ),
    Clause(
        "ISO/IEC 24029-2:2023",
        "6.2.1.3",
        "deterministic and non-deterministic verifiers",
        "The verifier is non-deterministic: α bounds its error for each image; seed and votes are "
        "recorded, so that it can be repeated.",
        "A deterministic proof.",
    ),
    Clause(
        "ISO/IEC 24029-2:2023",
        "6.2.1.5",
        "verifiers of real and of computer arithmetic",
        "With exact noise the certificates hold in floating point; settings.noise says which noise "
        "it was.",
        "With ordinary noise: floating point. Another precision of the network, in any case.",
    ),
    Clause(
        "Regulation (EU) 2024/1689 (AI Act)",
        "Article 15(3)",
        "levels and metrics of accuracy, to be declared in the instructions of use",
        "Certified accuracy with a lower confidence bound, the images and the method behind it.",
        "Accuracy in use on other data, and the declaration itself.",
    ),
    Clause(
        "Regulation (EU) 2024/1689 (AI Act)",
        "Article 15(4)",
        "resilience to errors, faults and inconsistencies",
        "Small random disturbances of an input, as far as their ℓ₂ length is below the radius.",
        "Faults of hardware and software, redundancy, feedback loops of systems that go on "
        "learning, disturbances of other kinds.",
    ),
    Clause(
        "Regulation (EU) 2024/1689 (AI Act)",
        "Article 15(5)",
        "cybersecurity: adversarial examples (model evasion)",
        "A lower bound of the share of images whose answer no ℓ₂ change below the radius alters.",
        "Data poisoning, model poisoning, attacks on confidentiality, evasion by other changes, "
        "access control, monitoring and response.",
    ),
    Clause(
        "NIST AI RMF 1.0",
        "MEASURE 2.1",
        "test sets, metrics and tools of the evaluation are documented",
        "Data, settings, versions, hashes and commands stand here and can be repeated.",
        "Evaluations of other properties.",
    ),
    Clause(
        "NIST AI RMF 1.0",
        "MEASURE 2.5",
        "validity and reliability, with limits of generalisation documented",
        "Accuracy under bounded changes on the stated images, and a list of what does not follow.",
        "Validity for the intended use, and conditions other than those of the images.",
    ),
    Clause(
        "NIST AI RMF 1.0",
        "MEASURE 2.6",
        "safety; its metrics reflect reliability and robustness",
        "One metric of robustness, per class too.",
        "Hazards, consequences of a wrong answer, safe failure, response times.",
    ),
    Clause(
        "NIST AI RMF 1.0",
        "MEASURE 2.7",
        "security and resilience are evaluated and documented",
        "Resilience to evasion by ℓ₂-bounded changes of the input.",
        "Every other attack on the system.",
    ),
)
